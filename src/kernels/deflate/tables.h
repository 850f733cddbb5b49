#pragma once

// Canonical Huffman codes: a table for the codes that are common, a search for those that are long.

#include "kernels/deflate/format.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE::deflate {

// In shared memory. Codes are compared left-justified in kMaxCodeBits: those of n bits lie from
// limit[n - 1] up to limit[n].
template <class Codes, unsigned kRoot>
struct Huffman {
  static constexpr unsigned kRootBits = kRoot;

  Code root[1u << kRoot];       // by the next kRoot bits
  Code ordered[Codes::kCount];  // by length, then symbol
  u32 limit[kMaxCodeBits + 1];
  u32 first[kMaxCodeBits + 1];  // index into `ordered` of the first code of n bits
  u32 next[kMaxCodeBits + 1];   // while it is filled

  // For one warp. False when these lengths make no code that zlib accepts; the one incomplete
  // code that it does is of a single bit, or of nothing.
  SIMT_DEVICE bool order(const u8* lengths) {
    const unsigned lane = simt::lane_index();
    if (lane <= kMaxCodeBits) next[lane] = 0;
    simt::sync_warp();
    for (unsigned s = lane; s < Codes::kCount; s += simt::kWarp)
      if (lengths[s]) simt::atomic_add(&next[lengths[s]], 1u);
    simt::sync_warp();
    const bool of_length = lane >= 1 && lane <= kMaxCodeBits;
    const u32 count = of_length ? next[lane] : 0;
    const u32 end = simt::inclusive_sum(of_length ? count << (kMaxCodeBits - lane) : 0);
    const u32 index = simt::inclusive_sum(count) - count;
    simt::sync_warp();
    if (lane <= kMaxCodeBits) {
      limit[lane] = end;
      first[lane] = next[lane] = index;
    }
    const u32 used = simt::shuffle(end, kMaxCodeBits);
    const bool longer = simt::any(lane > 1 && count != 0);
    constexpr u32 kAll = 1u << kMaxCodeBits;
    if (used > kAll || (used < kAll && (longer || !Codes::kMayBeIncomplete))) return false;
    for (unsigned s = 0; s < Codes::kCount; s += simt::kWarp) {
      const unsigned symbol = s + lane;
      const u32 bits = symbol < Codes::kCount ? lengths[symbol] : 0;
      const u32 same = simt::match(bits), before = same & ((1u << lane) - 1);
      simt::sync_warp();
      const u32 at = next[bits] + simt::popcount(before);
      simt::sync_warp();
      if (bits == 0) continue;
      ordered[at] = Codes::make(symbol, bits);
      if (before == 0) next[bits] = at + simt::popcount(same);
    }
    simt::sync_warp();
    return true;
  }

  // For `threads` threads, after order() and a sync.
  SIMT_DEVICE void fill(unsigned thread, unsigned threads) {
    for (unsigned i = thread; i < 1u << kRoot; i += threads) {
      const Code code = find<1>(i);
      const bool is_long = !(code & kInvalid) && code_bits(code) > kRoot;
      root[i] = is_long ? kLong : code;
    }
  }

  SIMT_DEVICE Code look_up(u32 window) const {
    const Code code = root[window & ((1u << kRoot) - 1)];
    return code & kLong ? find<kRoot + 1>(window) : code;
  }

 private:
  // Of a code that has at least kFrom bits.
  template <unsigned kFrom>
  SIMT_DEVICE Code find(u32 window) const {
    const u32 code = simt::reverse_bits(window) >> (32 - kMaxCodeBits);
    u32 bits = kFrom;
    SIMT_UNROLL
    for (unsigned n = kFrom; n < kMaxCodeBits; ++n) bits += code >= limit[n];
    if (code >= limit[kMaxCodeBits]) return make_code(1, 0, 0, kInvalid);
    return ordered[first[bits] + ((code - limit[bits - 1]) >> (kMaxCodeBits - bits))];
  }
};

}  // namespace headrace::SIMT_SPACE::deflate
