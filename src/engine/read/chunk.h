#pragma once

// One chunk to where a query (Box or Points) has its elements, on the host.

#include "base/limits.h"
#include "codec/codec.h"
#include "engine/layout/array_layout.h"
#include "engine/query/sink.h"
#include "store/async.h"
#include "store/coalesce.h"

namespace headrace {

// Encoded bytes are held whole: an absurd size is refused before it is allocated.
std::size_t checked_encoded_nbytes(std::uint64_t nbytes,
                                   std::uint64_t max_nbytes = kMaxEncodedNbytes);
// Of a chunk that a chain encodes, by any encoder: more is `corrupt`, before it is read.
std::uint64_t max_encoded_nbytes(const CodecChain& chain);
// What is wanted of an object that is one chunk.
inline Extent object_part(const CodecChain& chain) {
  return Extent::range(0, max_encoded_nbytes(chain));
}

void decode_chunk(const CodecChain& chain,
                  ConstBytes encoded,
                  ChunkSink& sink,
                  const DecodeContext& context);

// A chunk whose encoded bytes are `range` of an object.
template <typename Query>
void read_chunk(const ArrayLayout& layout,
                const ObjectReader& reader,
                const ByteRange& range,
                const Query& query,
                const DecodeContext& context);

}  // namespace headrace
