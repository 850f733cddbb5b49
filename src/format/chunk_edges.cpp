#include "format/chunk_edges.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

#include "base/checked.h"

namespace headrace {
namespace {

[[noreturn]] void throw_extent(std::int64_t extent) {
  throw Error(ErrorCode::invalid_argument,
              "chunk extent " + std::to_string(extent) + ", expected at least 1");
}

}  // namespace

ChunkEdges ChunkEdges::repeating(std::int64_t extent) {
  if (extent < 1) throw_extent(extent);
  return {{{0, 0, extent}}, std::numeric_limits<std::int64_t>::max(), true};
}

void ChunkEdges::append(std::int64_t extent, std::int64_t count) {
  if (extent < 1) throw_extent(extent);
  if (count < 1) {
    throw Error(ErrorCode::invalid_argument,
                std::to_string(count) + " chunks in a run, expected at least 1");
  }
  const std::int64_t first_chunk =
      runs.empty() ? 0 : checked_add(runs.back().first_chunk, count_of(runs.back()), "chunks");
  const std::int64_t after =
      checked_add(end, checked_mul(extent, count, "chunk extents"), "chunk extents");
  if (runs.empty() || runs.back().extent != extent) runs.push_back({first_chunk, end, extent});
  end = after;
}

void ChunkEdges::grow_to(std::int64_t extent) {
  if (extent > end) append(extent - end, 1);
}

const ChunkRun& ChunkEdges::run_of_index(std::int64_t index) const {
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), index, [](std::int64_t i, const ChunkRun& run) {
        return i < run.first_index;
      });
  return *std::prev(after);
}

const ChunkRun& ChunkEdges::run_of_chunk(std::int64_t chunk) const {
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), chunk, [](std::int64_t i, const ChunkRun& run) {
        return i < run.first_chunk;
      });
  return *std::prev(after);
}

std::int64_t ChunkEdges::first_index_of(std::int64_t chunk) const {
  const ChunkRun& run = run_of_chunk(chunk);
  return run.first_index + (chunk - run.first_chunk) * run.extent;
}

std::int64_t ChunkEdges::largest_extent() const {
  std::int64_t largest = 0;
  for (const ChunkRun& run : runs) largest = std::max(largest, run.extent);
  return largest;
}

std::int64_t ChunkEdges::count_of(const ChunkRun& run) const {
  const std::int64_t after = &run == &runs.back() ? end : (&run + 1)->first_index;
  return (after - run.first_index) / run.extent;
}

}  // namespace headrace
