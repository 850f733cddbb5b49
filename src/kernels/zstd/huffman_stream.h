#pragma once

// One lane's way through a stream of Huffman codes, which is read backward from below its last set
// bit (https://www.rfc-editor.org/rfc/rfc8878#section-4.2.2). The lane has a ring of
// its own in shared memory, and asks for what follows while it decodes: a thousand lanes that load
// from a thousand places need more lines than the cache of a multiprocessor has, and one lane's
// miss would stop its whole warp.

#include "kernels/zstd/bits.h"
#include "kernels/zstd/huffman.h"

namespace headrace::SIMT_SPACE::zstd {

class HuffmanStream {
 public:
  static constexpr u32 kQuads = 4;
  struct Ring {
    simt::Quad quads[kQuads];
  };

  // Positions count bits from `quads`; below that nothing is loaded.
  SIMT_DEVICE HuffmanStream(const HuffmanTable& table, Ring& ring, const simt::Quad* quads)
      : table_(table.entries), shift_(32 - table.log), ring_(ring.quads), quads_(quads) {}

  SIMT_DEVICE i32 position() const { return position_; }

  // To a position in the stream, or -1.
  SIMT_DEVICE void start(i32 position) {
    position_ = position;
    next_ = position >> 7;
    for (u32 i = 0; i < kQuads; ++i) load_next();
    simt::copy_commit();
    simt::copy_wait();
  }

  // Passes codes until the position is at or below `stop`; gives their number.
  SIMT_DEVICE u32 skip_to(i32 stop) {
    u32 count = 0;
    while (position_ > stop + kReach) {
      take_group();
      take_group();
      refill();
      count += 2 * kGroup;
    }
    while (position_ > stop) {
      Window window = window_here();
      SIMT_UNROLL
      for (u32 i = 0; i < kGroup; ++i) {
        const u32 nbits = length(take(window));
        if (position_ <= stop) break;
        position_ -= static_cast<i32>(nbits);
        ++count;
      }
    }
    refill();
    simt::copy_wait();
    return count;
  }

  // Writes the next `count` symbols.
  SIMT_DEVICE void write(u8* to, u32 count) {
    const u32 head = (0u - static_cast<u32>(reinterpret_cast<std::uintptr_t>(to))) % 16;
    const u32 first = head < count ? head : count;
    write_bytes(to, first);
    u8* const end = to + count;
    for (to += first; to + 16 <= end; to += 16) {
      simt::Quad symbols;
      symbols.x = take_group();
      symbols.y = take_group();
      refill();
      symbols.z = take_group();
      symbols.w = take_group();
      refill();
      *reinterpret_cast<simt::Quad*>(to) = symbols;
    }
    write_bytes(to, static_cast<u32>(end - to));
    simt::copy_wait();
  }

 private:
  // Codes that one window holds whatever their length, and bits that may be taken between refills.
  static constexpr u32 kGroup = 4;
  static constexpr i32 kReach = 2 * kGroup * kMaxHuffmanLog;
  static_assert(kReach < 128, "a refill loads one quad at most");

  // The 64 bits below the position.
  struct Window {
    u32 low, high;
  };
  SIMT_DEVICE u32 word(i32 index) const {
    return reinterpret_cast<const u32*>(ring_)[index & (4 * kQuads - 1)];
  }
  SIMT_DEVICE Window window_here() const {
    const i32 at = position_ >> 5;
    const u32 c = word(at), b = word(at - 1), a = word(at - 2);
    const u32 shift = static_cast<u32>(position_);
    return {simt::funnel_right(a, b, shift), simt::funnel_right(b, c, shift)};
  }

  // Gives an entry of the table: symbol << 8 | length.
  SIMT_DEVICE u32 take(Window& window) const {
    const u32 entry = table_[window.high >> shift_];
    window.high = simt::funnel_left(window.low, window.high, entry);
    window.low = simt::funnel_left(0, window.low, entry);
    return entry;
  }
  SIMT_DEVICE static u32 length(u32 entries) { return entries & 255; }  // their sum, if several

  // Four symbols, the first in the lowest byte.
  SIMT_DEVICE u32 take_group() {
    Window window = window_here();
    const u32 a = take(window), b = take(window), c = take(window), d = take(window);
    position_ -= static_cast<i32>(length(a + b + c + d));
    return simt::permute_bytes(
        simt::permute_bytes(a, b, 0x51), simt::permute_bytes(c, d, 0x51), 0x5410);
  }

  SIMT_DEVICE void write_bytes(u8* to, u32 count) {
    for (u32 done = 0; done < count; refill()) {
      Window window = window_here();
      SIMT_UNROLL
      for (u32 i = 0; i < kGroup; ++i, ++done) {
        const u32 entry = take(window);
        if (done >= count) break;
        position_ -= static_cast<i32>(length(entry));
        to[done] = static_cast<u8>(entry >> 8);
      }
    }
  }

  SIMT_DEVICE void load_next() {
    if (next_ >= 0) simt::copy_async(&ring_[static_cast<u32>(next_) % kQuads], quads_ + next_);
    --next_;
  }
  // Keeps the quads ahead of the position on their way. What was asked for two refills ago is
  // there: the position needs two at least to come to it.
  SIMT_DEVICE void refill() {
    if ((position_ >> 7) - next_ < static_cast<i32>(kQuads)) load_next();
    simt::copy_commit();
    simt::copy_wait<2>();
  }

  const u16* table_;
  u32 shift_;
  simt::Quad* ring_;
  const simt::Quad* quads_;
  i32 position_ = 0;
  i32 next_ = 0;  // quad to load
};

}  // namespace headrace::SIMT_SPACE::zstd
