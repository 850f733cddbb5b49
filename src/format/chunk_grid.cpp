#include "format/chunk_grid.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/checked.h"

namespace headrace {
namespace {

DimPlan plan_range(const DimSelection& selection, std::int64_t chunk_extent) {
  DimPlan plan;
  if (selection.count == 0) return plan;
  const std::int64_t step = selection.step;
  const std::int64_t last = selection.start + step * (selection.count - 1);
  const std::int64_t spanned = last / chunk_extent - selection.start / chunk_extent + 1;
  plan.pieces.reserve(static_cast<std::size_t>(std::min(spanned, selection.count)));
  for (std::int64_t i = 0; i < selection.count;) {
    const std::int64_t index = selection.start + step * i;
    DimPiece piece;
    piece.chunk = index / chunk_extent;
    piece.first = index - piece.chunk * chunk_extent;
    piece.step = step;
    piece.count = std::min((chunk_extent - 1 - piece.first) / step + 1, selection.count - i);
    piece.result_first = selection.reversed ? selection.count - 1 - i : i;
    piece.result_step = selection.reversed ? -1 : 1;
    plan.pieces.push_back(piece);
    i += piece.count;
  }
  return plan;
}

DimPlan plan_list(const DimSelection& selection, std::int64_t chunk_extent) {
  // Position in the result by chunk, a stable order: later of two equal indices comes later.
  std::vector<std::pair<std::int64_t, std::int64_t>> by_chunk;
  by_chunk.reserve(selection.indices.size());
  std::int64_t position = 0;
  for (std::int64_t index : selection.indices) {
    by_chunk.emplace_back(index / chunk_extent, position++);
  }
  if (!std::is_sorted(by_chunk.begin(), by_chunk.end())) {
    std::sort(by_chunk.begin(), by_chunk.end());
  }

  DimPlan plan;
  plan.is_list = true;
  plan.local_index.reserve(by_chunk.size());
  plan.result_index.reserve(by_chunk.size());
  for (const auto& [chunk, result] : by_chunk) {
    const std::int64_t local =
        selection.indices[static_cast<std::size_t>(result)] - chunk * chunk_extent;
    if (plan.pieces.empty() || plan.pieces.back().chunk != chunk) {
      DimPiece piece;
      piece.chunk = chunk;
      piece.list_first = static_cast<std::int64_t>(plan.local_index.size());
      plan.pieces.push_back(piece);
    } else {
      plan.list_ascending &= plan.local_index.back() <= local;
    }
    ++plan.pieces.back().count;
    plan.local_index.push_back(local);
    plan.result_index.push_back(result);
  }
  return plan;
}

}  // namespace

DimPlan plan_dimension(const DimSelection& selection, std::int64_t chunk_extent) {
  if (chunk_extent < 1) {
    throw Error(ErrorCode::invalid_argument,
                "chunk extent " + std::to_string(chunk_extent) + ", expected at least 1");
  }
  return selection.is_list ? plan_list(selection, chunk_extent)
                           : plan_range(selection, chunk_extent);
}

Shape grid_shape(const Shape& shape, const Shape& chunk_shape) {
  if (shape.size() != chunk_shape.size()) {
    throw Error(ErrorCode::invalid_argument,
                "chunks of " + std::to_string(chunk_shape.size()) + " dimensions for an array of " +
                    std::to_string(shape.size()));
  }
  Shape grid(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (chunk_shape[d] < 1) {
      throw Error(ErrorCode::invalid_argument,
                  "chunk extent " + std::to_string(chunk_shape[d]) + " along axis " +
                      std::to_string(d) + ", expected at least 1");
    }
    grid[d] = shape[d] / chunk_shape[d] + (shape[d] % chunk_shape[d] != 0 ? 1 : 0);
  }
  return grid;
}

}  // namespace headrace
