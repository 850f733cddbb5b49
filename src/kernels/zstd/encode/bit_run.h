#pragma once

// Bits that many threads write side by side, each a run of them. The lowest of a byte comes first.

#include "kernels/common/access.h"

namespace headrace::SIMT_SPACE::zstd {

// Bytes [begin, end) of the runs. Runs meet within words, which are put together by atomics: first
// share() by each thread, with a sync behind it, then the runs.
struct BitSection {
  u8* begin;
  u8* end;

  // Bits are counted from the aligned word that `begin` lies in.
  SIMT_DEVICE u32* words() const { return reinterpret_cast<u32*>(begin - misalignment(begin, 4)); }
  SIMT_DEVICE u32 first_bit() const { return 8 * misalignment(begin, 4); }

  // The bytes of the word at `bit` become zeros, as far as they are the section's: a run begins, or
  // the last one ends there.
  SIMT_DEVICE void share(u32 bit) const {
    if (begin == end) return;  // and null, maybe
    u8* const word = reinterpret_cast<u8*>(words() + bit / 32);
    for (u32 i = 0; i < 4; ++i)
      if (word + i >= begin && word + i < end) word[i] = 0;
  }
};

class BitRun {
 public:
  SIMT_DEVICE BitRun(const BitSection& section, u32 at)
      : word_(section.words() + at / 32), count_(at % 32), is_shared_(count_ > 0) {}

  // At most 32 bits, the others of `value` are 0.
  SIMT_DEVICE void put(u32 value, u32 bits) {
    pending_ |= u64{value} << count_;
    count_ += bits;
    if (count_ < 32) return;
    const u32 full = static_cast<u32>(pending_);
    if (is_shared_)
      simt::atomic_or(word_, full);
    else
      *word_ = full;
    is_shared_ = false;
    ++word_;
    pending_ >>= 32;
    count_ -= 32;
  }
  SIMT_DEVICE void finish() {
    if (count_ > 0 && static_cast<u32>(pending_))
      simt::atomic_or(word_, static_cast<u32>(pending_));
  }

 private:
  u32* word_;
  u64 pending_ = 0;
  u32 count_;  // bits in it, with those of the run before
  bool is_shared_;
};

}  // namespace headrace::SIMT_SPACE::zstd
