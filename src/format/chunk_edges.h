#pragma once

// The chunks of a rectilinear grid. Pure.

#include <cstdint>
#include <vector>

namespace headrace {

// Chunks of one extent, side by side along a dimension.
struct ChunkBand {
  std::int64_t first_chunk = 0;  // coordinate
  std::int64_t first_index = 0;
  std::int64_t extent = 0;
  bool operator==(const ChunkBand&) const = default;
};

// The chunks along one dimension of a rectilinear grid, run-length encoded: of any number of equal
// chunks there is one band. They reach to the end of the array or beyond.
struct ChunkEdges {
  std::vector<ChunkBand> bands;  // neighbours differ in extent
  std::int64_t end = 0;          // index behind the last chunk
  bool repeats = false;          // one extent without end: so many chunks as the array needs

  static ChunkEdges repeating(std::int64_t extent);
  // `count` further chunks. invalid_argument when the end cannot be counted, or for less than 1.
  void append(std::int64_t extent, std::int64_t count);
  // Of the array's extent after a resize: one further chunk when they end before.
  void grow_to(std::int64_t extent);

  const ChunkBand& band_of_index(std::int64_t index) const;
  const ChunkBand& band_of_chunk(std::int64_t chunk) const;
  std::int64_t first_index_of(std::int64_t chunk) const;
  std::int64_t largest_extent() const;
  // Chunks in a band; of a repeating one, as many as indices can count.
  std::int64_t count_of(const ChunkBand& band) const;
};

}  // namespace headrace
