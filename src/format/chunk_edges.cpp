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
                std::to_string(count) + " chunks of one extent, expected at least 1");
  }
  const std::int64_t first_chunk =
      bands.empty() ? 0 : checked_add(bands.back().first_chunk, count_of(bands.back()), "chunks");
  const std::int64_t after =
      checked_add(end, checked_mul(extent, count, "chunk extents"), "chunk extents");
  if (bands.empty() || bands.back().extent != extent) bands.push_back({first_chunk, end, extent});
  end = after;
}

void ChunkEdges::grow_to(std::int64_t extent) {
  if (extent > end) append(extent - end, 1);
}

const ChunkBand& ChunkEdges::band_of_index(std::int64_t index) const {
  const auto after = std::upper_bound(
      bands.begin(), bands.end(), index, [](std::int64_t i, const ChunkBand& band) {
        return i < band.first_index;
      });
  return *std::prev(after);
}

const ChunkBand& ChunkEdges::band_of_chunk(std::int64_t chunk) const {
  const auto after = std::upper_bound(
      bands.begin(), bands.end(), chunk, [](std::int64_t i, const ChunkBand& band) {
        return i < band.first_chunk;
      });
  return *std::prev(after);
}

std::int64_t ChunkEdges::first_index_of(std::int64_t chunk) const {
  const ChunkBand& band = band_of_chunk(chunk);
  return band.first_index + (chunk - band.first_chunk) * band.extent;
}

std::int64_t ChunkEdges::largest_extent() const {
  std::int64_t largest = 0;
  for (const ChunkBand& band : bands) largest = std::max(largest, band.extent);
  return largest;
}

std::int64_t ChunkEdges::count_of(const ChunkBand& band) const {
  const std::int64_t after = &band == &bands.back() ? end : (&band + 1)->first_index;
  return (after - band.first_index) / band.extent;
}

}  // namespace headrace
