#pragma once

// One chunk to where a query (Box or Points) has its elements, on the host.

#include "codec/codec.h"
#include "engine/array_state.h"
#include "engine/sink.h"

namespace headrace {

// Encoded bytes are held whole: an absurd size is refused before it is allocated.
std::size_t checked_encoded_nbytes(std::uint64_t nbytes);

void decode_chunk(const CodecChain& chain,
                  ConstBytes encoded,
                  ChunkSink& sink,
                  const DecodeContext& context);

// A chunk whose encoded bytes are [base, base + nbytes) of an object.
template <typename Query>
void read_chunk(const ArrayLayout& layout,
                const ObjectReader& reader,
                std::uint64_t base,
                std::uint64_t nbytes,
                const Query& query,
                const DecodeContext& context);

}  // namespace headrace
