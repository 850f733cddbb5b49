#pragma once

// What the encoders share: a chunk's job, and slabs of chunks that bound their scratch memory.

#include <span>

#include "kernels/common/work.h"
#include "kernels/kernels.h"

namespace headrace::SIMT_SPACE {

struct EncodeJob {
  const u8* source;
  u64 nbytes;
  u8* target;
  u64 capacity;
  u64* encoded_nbytes;
  u32 chunk;
  u64 first;  // item, as WorkList sets it
};

inline EncodeJob job_of(const EncodeBatch& batch, const Frame& frame) {
  return {frame.source,
          frame.source_nbytes,
          frame.target,
          frame.target_nbytes,
          batch.encoded_nbytes + frame.chunk,
          frame.chunk,
          0};
}

// Slabs of at least one frame, that end with the one that reaches `limit`. `nbytes_of(frame)` is
// what it counts for.
template <class NbytesOf, class Encode>
void each_slab(std::span<const Frame> frames, u64 limit, NbytesOf nbytes_of, Encode encode) {
  for (std::size_t begin = 0, end = 0; begin < frames.size(); begin = end) {
    for (u64 nbytes = 0; end < frames.size() && (end == begin || nbytes < limit); ++end)
      nbytes += nbytes_of(frames[end]);
    encode(frames.subspan(begin, end - begin));
  }
}

}  // namespace headrace::SIMT_SPACE
