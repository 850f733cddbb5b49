#pragma once

#include <cstdint>
#include <vector>

#include "codec/chain.h"
#include "engine/query/sink.h"
#include "store/store.h"

namespace headrace {

// Chunks stored as they lie in memory: only the bytes that are wanted are read, straight into place
// where they lie together.

// The chunk is [base, base + nbytes) of the object.
void read_plain(const ObjectReader& reader,
                std::uint64_t base,
                std::size_t nbytes,
                ChunkSink& sink);

// What of a chunk is to be read across a network, by rising offsets: what is wanted of it, and what
// lies between as `near` says. Of a sink whose elements come in the order of the chunk.
std::vector<ByteRange> plain_ranges(const ChunkSink& sink, const Coalescing& near);

// `corrupt` unless `nbytes` is the size of a chunk.
void check_plain_size(const CodecChain& chain, std::uint64_t nbytes);

}  // namespace headrace
