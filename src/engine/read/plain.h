#pragma once

#include <cstdint>

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

// `corrupt` unless `nbytes` is the size of a chunk.
void check_plain_size(const CodecChain& chain, std::uint64_t nbytes);

}  // namespace headrace
