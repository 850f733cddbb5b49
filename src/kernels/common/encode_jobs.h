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

// Matches are found in segments, a warp each. With its history, the bytes before it, which its
// matches may copy from, a segment has 48 KiB. A byte of history takes an eighth of the time of one
// that is searched.
inline constexpr u32 kSegmentAndHistory = 48 << 10;
inline constexpr u32 kLongestSegment = 32 << 10, kShortestSegment = 8 << 10;
constexpr u32 most_history(u32 segment_nbytes) { return kSegmentAndHistory - segment_nbytes; }

// How many a device searches at once. A multiprocessor has 227 KiB of shared memory, of which a
// segment takes the finder's table and 1 KiB.
template <class Finder>
u64 segments_at_once(const Queue& queue) {
  return (u64{227} << 10) / (sizeof(Finder) + 1024) * queue.tuned_for();
}
// What takes the least time, in rounds of so many segments. Each of the parts, chunks or blocks, is
// cut for itself, as evenly as windows allow.
constexpr u32 choose_segment_nbytes(u64 part_nbytes, u64 parts, u64 at_once) {
  constexpr u32 kStep = 1 << 10;
  if (at_once == 0) at_once = 1;
  u32 best = kLongestSegment;
  u64 least = ~u64{0};
  for (u32 most = kLongestSegment; most >= kShortestSegment; most -= kStep) {
    const u64 count = part_nbytes > most ? (part_nbytes + most - 1) / most : 1;
    const u64 even = (part_nbytes + count - 1) / count;
    const u32 segment = static_cast<u32>(even + simt::kWarp - 1) & ~(simt::kWarp - 1);
    const u64 rounds = (parts * count + at_once - 1) / at_once;
    const u64 time = rounds * (segment + most_history(segment) / 8);
    if (segment == 0 || time >= least) continue;
    least = time;
    best = segment;
  }
  return best;
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
