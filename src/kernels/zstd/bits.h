#pragma once

// Bits of the two kinds of zstd streams: forward, the lowest bit of a byte first (table
// descriptions), and backward from a final 1 bit (entropy coded streams). Positions count bits from
// the start of a word.

#include "simt/simt.h"

namespace headrace::SIMT_SPACE::zstd {

template <class Word>
struct WordsOf {
  const Word* words;
  u32 skipped;  // bytes between the first word's start and the address
};
template <class Word>
SIMT_DEVICE WordsOf<Word> words_of(const u8* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const u32 skipped = static_cast<u32>(address % sizeof(Word));
  return {reinterpret_cast<const Word*>(address - skipped), skipped};
}

SIMT_DEVICE u32 low_mask(u32 bits) { return (1u << bits) - 1; }
SIMT_DEVICE u32 highest_bit(u32 v) { return 31 - simt::leading_zeros(v); }

// 32 bits from bit `bit` of p on; reads the words that hold them.
SIMT_DEVICE u32 bits_from(const u8* p, u32 bit) {
  const auto [words, skipped] = words_of<u32>(p);
  const u32 at = skipped * 8 + bit;
  return simt::funnel_right(
      simt::load_constant(words + at / 32), simt::load_constant(words + at / 32 + 1), at);
}

SIMT_DEVICE u32 word_or_zero(const u32* words, i32 index) {
  return index >= 0 ? simt::load_constant(words + index) : 0;
}
// The 64 bits below a position, the nearest on top; zeros below the first word.
SIMT_DEVICE u64 bits_below(const u32* words, i32 position) {
  const i32 at = position >> 5;
  const u32 c = word_or_zero(words, at), b = word_or_zero(words, at - 1),
            a = word_or_zero(words, at - 2);
  const u32 shift = static_cast<u32>(position);
  return u64{simt::funnel_right(b, c, shift)} << 32 | simt::funnel_right(a, b, shift);
}
// The uppermost bits, up to 32 and also none.
SIMT_DEVICE u32 top_bits(u64 bits, u32 count) {
  return static_cast<u32>(bits >> 1 >> (63 - count));
}

}  // namespace headrace::SIMT_SPACE::zstd
