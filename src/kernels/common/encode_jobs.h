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

// Matches are found in segments, a warp each. With its history, the bytes before it, a segment has
// 64 KiB, as far as offsets of LZ4 reach. Those without a history take the fewest steps for a byte;
// where they would leave the device idle they are shorter, and the rest is history, which takes a
// fraction of the steps.
inline constexpr u32 kSegmentAndHistory = 65536;
inline constexpr u32 kLeastSegment = 16384;
// A multiprocessor has room for 13 with their tables. From 4 on it has enough to do while one
// waits.
inline constexpr u64 kSegmentsAProcessor = 4;
inline u64 wanted_segments(const Queue& queue) { return kSegmentsAProcessor * queue.tuned_for(); }
inline u32 choose_segment_nbytes(u64 nbytes, u64 wanted) {
  u32 segment = kSegmentAndHistory;
  while (segment > kLeastSegment && nbytes / segment < wanted) segment /= 2;
  return segment;
}
// Whole windows, for a segment that begins at `at` of what its matches may copy from.
SIMT_DEVICE u32 history_nbytes(u64 at, u32 segment_nbytes) {
  const u32 most = kSegmentAndHistory - segment_nbytes;
  return at < most ? static_cast<u32>(at) & ~(simt::kWarp - 1) : most;
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
