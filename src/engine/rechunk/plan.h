#pragma once

// Which blocks a rechunk reads and writes. A block is a box of whole chunks (shards) of what is
// written, so that each of these is written once; what it costs is the chunks of the source that it
// touches. Both are products over the dimensions, which are looked at one by one.

#include <cstddef>
#include <optional>
#include <vector>

#include "headrace/rechunk.h"

namespace headrace {

// Along each dimension the extents of the chunks; empty along one without elements.
using ChunkSizes = std::vector<Shape>;

// The pass of least bytes read whose blocks have at most max_block_nbytes. `invalid_argument` when
// a unit of the destination has more.
RechunkPass plan_pass(const ChunkSizes& source,
                      const ChunkSizes& destination,
                      std::size_t itemsize,
                      std::size_t max_block_nbytes);

// That pass, or two when these move fewer bytes: the first of whole chunks of the source, the
// second of whole units of the destination.
std::vector<RechunkPass> plan_passes(const ChunkSizes& source,
                                     const ChunkSizes& destination,
                                     std::size_t itemsize,
                                     std::size_t max_block_nbytes);

// The chunks of the array between two passes: cut where the blocks of either are, so that a block
// of the first writes and one of the second reads whole chunks only.
ChunkSizes common_chunks(const ChunkSizes& a, const ChunkSizes& b);

// Each block by its slices, in C order.
std::vector<Selection> block_selections(const ChunkSizes& blocks);

// About 64 MiB of whole chunks, trailing dimensions first; nothing when a chunk will do.
std::optional<Shape> choose_shards(const Shape& shape,
                                   const Shape& chunks,
                                   std::size_t itemsize,
                                   std::size_t max_nbytes);

}  // namespace headrace
