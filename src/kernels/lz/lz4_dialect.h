#pragma once

// LZ4 blocks: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md

#include "kernels/lz/stream.h"

namespace headrace::SIMT_SPACE {

struct Lz4 {
  static constexpr u32 kMinToken = 3, kMinOutput = 4;
  // 11 lanes warm up on 4 KiB: fewer than 0.1 % of the groups of packed floats then begin wrong.
  using Guess = LzCut<384, 21>;
  static constexpr u32 kFew = 8;

  SIMT_DEVICE static u32 start(const LzStream& stream) {
    if (stream.source_nbytes == 0) return kTruncated;
    // Nothing is one token of nothing, as liblz4 has it.
    if (stream.target_nbytes == 0 && (stream.source_nbytes != 1 || stream.source[0] != 0))
      return kWrongSize;
    return 0;
  }

  template <class Run>
  SIMT_DEVICE static LzStep step(u32 token, const u8* p, u32 x, u32 end, const Run& run) {
    u32 literals = token >> 4, match = token & 15;
    ++x;
    if (literals == 15) literals += run(p, x, end);
    if (x > end || literals > end - x) return {0, kTruncated};
    x += literals;
    if (x == end) return {literals, end};
    if (end - x < 2) return {0, kTruncated};
    x += 2;
    if (match == 15) match += add_run(p, x, end);
    if (x >= end) return {0, kTruncated};  // literals come last
    return {literals + match + 4, x};
  }

  SIMT_DEVICE static LzParts parts(const u8* p, u32 x, u32 end) {
    LzParts parts{};
    parts.literal_nbytes = simt::load_constant(p + x++) >> 4;
    if (parts.literal_nbytes == 15) parts.literal_nbytes += add_run(p, x, end);
    parts.literals = x;
    x += parts.literal_nbytes;
    if (x < end)
      parts.distance = simt::load_constant(p + x) | u32{simt::load_constant(p + x + 1)} << 8;
    return parts;
  }

  // "End of block conditions": no match begins in the last 12 bytes or reaches into the last 5.
  SIMT_DEVICE static bool allows(u32 at, u32 n, u32 size) {
    return at + 12 <= size && at + n + 5 <= size;
  }
};

}  // namespace headrace::SIMT_SPACE
