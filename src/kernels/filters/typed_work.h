#pragma once

#include "kernels/common/fault.h"
#include "kernels/common/numbers.h"
#include "kernels/common/work.h"

namespace headrace::SIMT_SPACE {

struct TypedChunk {
  const u8* source;
  u8* target;
  u64 n;  // elements
  u32 chunk;
  Fault fault;  // found on the host
  u64 first;
};

// Items of so many elements; a chunk has one at least, so that its fault is raised.
inline WorkList<TypedChunk> typed_work(const DecodeBatch& batch,
                                       const NumberConversion& filter,
                                       u64 item_elements) {
  const u32 from = nbytes_of(filter.encoded.type), to = nbytes_of(filter.decoded.type);
  WorkList<TypedChunk> list;
  for (const Frame& frame : batch.frames) {
    const u64 n = frame.source_nbytes / from;
    const bool fits = frame.source_nbytes % from == 0 && frame.target_nbytes % to == 0 &&
                      frame.target_nbytes / to == n;
    list.add({frame.source,
              frame.target,
              fits ? n : 0,
              frame.chunk,
              fits ? Fault::none : Fault::wrong_size,
              0},
             fits && n > 0 ? (n + item_elements - 1) / item_elements : 1);
  }
  return list;
}

}  // namespace headrace::SIMT_SPACE
