#include "format/chunk_grid.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/checked.h"

namespace headrace {
namespace {

DimPlan plan_range(const DimSelection& selection, const GridAxis& axis) {
  DimPlan plan;
  if (selection.count == 0) return plan;
  const std::int64_t step = selection.step;
  const std::int64_t last = selection.start + step * (selection.count - 1);
  const std::int64_t spanned = axis.at(last).number - axis.at(selection.start).number + 1;
  plan.pieces.reserve(static_cast<std::size_t>(std::min(spanned, selection.count)));
  for (std::int64_t i = 0; i < selection.count;) {
    const std::int64_t index = selection.start + step * i;
    const GridAxis::Cell cell = axis.at(index);
    DimPiece piece;
    piece.chunk = cell.number;
    piece.first = index - cell.first;
    piece.step = step;
    piece.count = std::min((cell.end - 1 - index) / step + 1, selection.count - i);
    piece.result_first = selection.reversed ? selection.count - 1 - i : i;
    piece.result_step = selection.reversed ? -1 : 1;
    plan.pieces.push_back(piece);
    i += piece.count;
  }
  return plan;
}

DimPlan plan_list(const DimSelection& selection, const GridAxis& axis) {
  // Position in the result by chunk, a stable order: later of two equal indices comes later.
  std::vector<std::pair<std::int64_t, std::int64_t>> by_chunk;
  by_chunk.reserve(selection.indices.size());
  std::int64_t position = 0;
  for (std::int64_t index : selection.indices) {
    by_chunk.emplace_back(axis.at(index).number, position++);
  }
  if (!std::is_sorted(by_chunk.begin(), by_chunk.end())) {
    std::sort(by_chunk.begin(), by_chunk.end());
  }

  DimPlan plan;
  plan.is_list = true;
  plan.local_index.reserve(by_chunk.size());
  plan.result_index.reserve(by_chunk.size());
  std::int64_t first = 0;  // index of the chunk
  for (const auto& [chunk, result] : by_chunk) {
    const std::int64_t index = selection.indices[static_cast<std::size_t>(result)];
    const bool begins = plan.pieces.empty() || plan.pieces.back().chunk != chunk;
    if (begins) first = axis.at(index).first;
    const std::int64_t local = index - first;
    if (begins) {
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

GridAxis::GridAxis(std::int64_t extent) : extent_(extent) {
  if (extent < 1) {
    throw Error(ErrorCode::invalid_argument,
                "chunk extent " + std::to_string(extent) + ", expected at least 1");
  }
}

GridAxis::Cell GridAxis::at_run(std::int64_t index) const {
  const ChunkBand& band = edges_->band_of_index(index);
  const std::int64_t end = &band == &edges_->bands.back() ? edges_->end : (&band + 1)->first_index;
  return {&band - edges_->bands.data(), band.first_index, end};
}

DimPlan plan_dimension(const DimSelection& selection, const GridAxis& axis) {
  return selection.is_list ? plan_list(selection, axis) : plan_range(selection, axis);
}

Shape grid_shape(const Shape& shape,
                 const Shape& chunk_shape,
                 const std::vector<ChunkEdges>& edges) {
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
    if (shape[d] == 0) continue;
    const std::int64_t last = shape[d] - 1;
    if (edges.empty()) {
      grid[d] = last / chunk_shape[d] + 1;
    } else {
      const ChunkBand& band = edges[d].band_of_index(last);
      grid[d] = band.first_chunk + (last - band.first_index) / band.extent + 1;
    }
  }
  return grid;
}

std::vector<Shape> chunk_sizes(const Shape& shape,
                               const Shape& chunk_shape,
                               const std::vector<ChunkEdges>& edges) {
  constexpr std::int64_t kMost = std::int64_t{1} << 28;
  const Shape grid = grid_shape(shape, chunk_shape, edges);
  std::vector<Shape> sizes(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (grid[d] > kMost) {
      throw Error(ErrorCode::out_of_memory,
                  "axis " + std::to_string(d) + " has " + std::to_string(grid[d]) + " chunks");
    }
    sizes[d].reserve(static_cast<std::size_t>(grid[d]));
    std::int64_t left = shape[d];
    for (std::int64_t chunk = 0; chunk < grid[d]; ++chunk) {
      const std::int64_t extent =
          edges.empty() ? chunk_shape[d] : edges[d].band_of_chunk(chunk).extent;
      sizes[d].push_back(std::min(extent, left));
      left -= sizes[d].back();
    }
  }
  return sizes;
}

Shape shape_of_chunk(const std::vector<std::int64_t>& coordinates,
                     const Shape& chunk_shape,
                     const std::vector<ChunkEdges>& edges) {
  if (edges.empty()) return chunk_shape;
  Shape shape(edges.size());
  for (std::size_t d = 0; d < edges.size(); ++d)
    shape[d] = edges[d].band_of_chunk(coordinates[d]).extent;
  return shape;
}

}  // namespace headrace
