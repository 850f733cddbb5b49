#pragma once

// Matches for the LZ encoders. A warp goes through a segment in windows of 32 positions, one a
// lane, and finds all matches of a window in one step:
//
// 1. Each lane looks up by a hash of the first bytes from its position on where these were last,
//    before the window or in it, and compares 8 bytes, then 16, with what is there.
// 2. The warp chooses among the matches from left to right: the first, then the first behind its
//    end. One whose right neighbour has a better one is not taken.
// 3. Only a match that is still the same after 16 bytes is followed to its end, by all lanes.
//
// Windows begin at multiples of 32, so that their bytes can be asked for two windows ahead. A match
// that ends behind its window covers the first positions of a later one; windows in between are
// left out.

#include "kernels/common/access.h"

namespace headrace::SIMT_SPACE {

// Of a chunk, at most 64 KiB, by positions from `source` on.
struct LzSegment {
  const u8* source;
  u32 begin;   // matches start here or later; what is before, the segment's history, they may copy
  u32 starts;  // matches start before; MatchFinder's kMinMatch bytes from there on are in the
               // segment
  u32 end;     // and end here at the latest
};

// Of a window, in one of its lanes.
struct LzMatches {
  u32 chosen;  // a bit for each lane that a match starts at
  u32 position;
  u8 byte;             // there
  u32 nbytes, offset;  // of the match, if the lane is chosen
};

SIMT_DEVICE u32 lanes_below(u32 lane) { return (1u << lane) - 1; }
SIMT_DEVICE u32 lanes_above(u32 lane) { return ~1u << lane; }
SIMT_DEVICE u32 highest_lane(u32 lanes) { return 31 - simt::leading_zeros(lanes); }

// 8 bytes at any address. Reads the aligned 8 bytes, or the two of them, that these lie in.
SIMT_DEVICE simt::Pair load_eight(const u8* p) {
  const u32 skip = misalignment(p, 8);
  const simt::Pair* const pairs = reinterpret_cast<const simt::Pair*>(p - skip);
  const simt::Pair a = simt::load_constant(pairs);
  const simt::Pair b = skip ? simt::load_constant(pairs + 1) : simt::Pair{};
  const bool second = skip >= 4;
  const u32 low = second ? a.y : a.x, middle = second ? b.x : a.y, high = second ? b.y : b.x;
  return {simt::funnel_right(low, middle, 8 * skip), simt::funnel_right(middle, high, 8 * skip)};
}

// How many of 8 bytes are the same, from the first on.
SIMT_DEVICE u32 same_bytes(simt::Pair a, simt::Pair b) {
  const u32 low = a.x ^ b.x;
  return low ? simt::trailing_zeros(low) / 8 : 4 + simt::trailing_zeros(a.y ^ b.y) / 8;
}

// The bytes from each lane's position in a window on, by a warp. They come by one load of a word in
// half of the lanes, two windows before they are asked for, and from there by shuffles.
class WindowBytes {
 public:
  // `nbytes` may be asked for; what is behind them is zeros or bytes behind them.
  SIMT_DEVICE WindowBytes(const u8* source, u32 nbytes)
      : skip_(misalignment(source, 4)),
        words_(reinterpret_cast<const u32*>(source - skip_)),
        count_((skip_ + nbytes + 3) / 4) {}

  SIMT_DEVICE void go_to(u32 at) {
    now_ = load(at);
    next_ = load(at + simt::kWarp);
    after_next_ = load(at + 2 * simt::kWarp);
  }
  // From the window at `at` to the one behind it.
  SIMT_DEVICE void advance(u32 at) {
    now_ = next_;
    next_ = after_next_;
    after_next_ = load(at + 3 * simt::kWarp);
  }
  // Bytes [4 word, 4 word + 8) from the lane's position on; `word` at most 2.
  SIMT_DEVICE simt::Pair eight(u32 word) const {
    const u32 from = skip_ + simt::lane_index(), first = from / 4 + word;
    const u32 a = simt::shuffle(now_, first), b = simt::shuffle(now_, first + 1),
              c = simt::shuffle(now_, first + 2);
    return {simt::funnel_right(a, b, from % 4 * 8), simt::funnel_right(b, c, from % 4 * 8)};
  }

 private:
  // The last byte that a lane asks for is 3 + 31 + 16 bytes behind the first word's begin.
  static constexpr u32 kWords = 13;

  SIMT_DEVICE u32 load(u32 at) const {
    const u32 lane = simt::lane_index(), word = at / 4 + lane;
    return lane < kWords && word < count_ ? simt::load_constant(words_ + word) : 0;
  }

  u32 skip_;
  const u32* words_;
  u32 count_;
  u32 now_ = 0, next_ = 0, after_next_ = 0;
};

// In shared memory, of one warp. `kMinMatch`: 4 to 8 bytes. `kTriesRepeat`: the last offset of the
// windows before is tried too, and kMinRepeat bytes are enough for it. To try in the same window
// the offset of each match that is taken would be a load for each, and gains 0.1 %.
template <u32 kMinMatch, u32 kHashBits, bool kTriesRepeat>
class MatchFinder {
 public:
  static constexpr u32 kMinRepeat = 4;

  // By a warp: calls take(LzMatches) for every window with a match, from left to right.
  template <class Take>
  SIMT_DEVICE void each_window(const LzSegment& segment, const Take& take) {
    const u32 lane = simt::lane_index();
    clear();
    WindowBytes bytes(segment.source, segment.end);
    bytes.go_to(0);
    u32 at = 0;
    for (; at + simt::kWarp <= segment.begin; at += simt::kWarp) {
      look_up(bytes.eight(0), at + lane, true);
      bytes.advance(at);
    }
    u32 covered = segment.begin, repeat = 0;
    while (at < segment.starts) {
      const u32 position = at + lane;
      const Own own{bytes.eight(0), bytes.eight(2)};
      const u32 known = look_up(own.first, position, position < segment.starts);
      LzMatches found{0, position, static_cast<u8>(own.first.x), 0, 0};
      const bool is_open = position >= covered && position < segment.starts;
      if (is_open && known) try_offset(segment, own, position - (known - 1), kMinMatch, 0, found);
      if (kTriesRepeat && is_open && repeat)
        try_offset(segment, own, repeat, kMinRepeat, kRepeatGain, found);
      choose(segment, covered, found);
      if (found.chosen) {
        take(found);
        repeat = simt::shuffle(found.offset, highest_lane(found.chosen));
      }
      if (covered < at + 2 * simt::kWarp) {
        bytes.advance(at);
        at += simt::kWarp;
      } else {
        at = covered & ~(simt::kWarp - 1);
        bytes.go_to(at);
      }
    }
  }

 private:
  static constexpr u32 kCompared = 16;  // bytes that lanes compare by themselves
  static constexpr u32 kSlots = 1 << kHashBits;
  // What a repeat of the last offset may be shorter by, since it needs no bits for the offset.
  static constexpr u32 kRepeatGain = 2;

  // The lane's bytes.
  struct Own {
    simt::Pair first, second;
  };

  SIMT_DEVICE void clear() {
    for (u32 i = 8 * simt::lane_index(); i < kSlots; i += 8 * simt::kWarp)
      *reinterpret_cast<simt::Quad*>(table_ + i) = {};
    simt::sync_warp();
  }

  // The upper bits of products. The second word is not shifted up before: a byte that is, or is the
  // last of the first word, reaches only the uppermost bits, and in planes that have few values in
  // the upper bits of their bytes the two would then share what few slots these tell apart.
  SIMT_DEVICE static u32 hash(simt::Pair bytes) {
    u32 mixed = bytes.x * 0x9e3779b1;
    if constexpr (kMinMatch > 4) mixed ^= (bytes.y & ~0u >> (64 - 8 * kMinMatch)) * 0x85ebca77;
    return mixed >> (32 - kHashBits);
  }

  // Where the lane's bytes may have been last, plus 1, or 0; then they are known to be here.
  // Of lanes with the same hash each finds the one before it, and the last is known from then on.
  SIMT_DEVICE u32 look_up(simt::Pair bytes, u32 position, bool valid) {
    const u32 lane = simt::lane_index(), slot = hash(bytes);
    const u32 same = simt::match(valid ? slot : kSlots + lane);
    const u32 before = same & lanes_below(lane);
    u32 found = 0;
    if (before)
      found = position - (lane - highest_lane(before)) + 1;
    else if (valid)
      found = table_[slot];
    simt::sync_warp();
    if (valid && same >> lane == 1) table_[slot] = static_cast<u16>(position + 1);
    simt::sync_warp();
    return found;
  }

  // The lane's match becomes the one with this offset if it has `least` bytes and is not shorter by
  // more than `gain`. Up to kCompared bytes.
  SIMT_DEVICE static void try_offset(
      const LzSegment& segment, const Own& own, u32 offset, u32 least, u32 gain, LzMatches& found) {
    if (offset > found.position) return;
    const u8* const from = segment.source + (found.position - offset);
    u32 same = same_bytes(own.first, load_eight(from));
    if (same == 8) same += same_bytes(own.second, load_eight(from + 8));
    if (same > segment.end - found.position) same = segment.end - found.position;
    if (same < least || same + gain < found.nbytes) return;
    found.nbytes = same;
    found.offset = offset;
  }

  // From left to right; each step takes one match. `covered` becomes the end of the last.
  SIMT_DEVICE static void choose(const LzSegment& segment, u32& covered, LzMatches& found) {
    const u32 lane = simt::lane_index(), at = found.position - lane;
    const u32 of_neighbour = simt::shuffle_down(found.nbytes, 1);
    const bool is_best = lane + 1 == simt::kWarp || of_neighbour <= found.nbytes + 1;
    for (u32 open = simt::ballot(found.nbytes > 0 && is_best); open;) {
      const u32 first = simt::trailing_zeros(open);
      u32 nbytes = simt::shuffle(found.nbytes, first);
      if (nbytes == kCompared) {
        const u8* const from = segment.source + at + first + kCompared;
        nbytes += common(from,
                         from - simt::shuffle(found.offset, first),
                         segment.end - (at + first + kCompared));
        if (lane == first) found.nbytes = nbytes;
      }
      found.chosen |= 1u << first;
      covered = at + first + nbytes;
      open = first + nbytes < simt::kWarp ? open & ~lanes_below(first + nbytes) : 0;
    }
  }

  // By all lanes: how many bytes are the same, at most `most`.
  SIMT_DEVICE static u32 common(const u8* a, const u8* b, u32 most) {
    for (u32 begin = 0;; begin += 8 * simt::kWarp) {
      const u32 at = begin + 8 * simt::lane_index();
      u32 same = 0;
      if (at < most) {
        same = same_bytes(load_eight(a + at), load_eight(b + at));
        if (same > most - at) same = most - at;
      }
      const u32 votes = simt::ballot(same < 8);
      if (votes == 0) continue;
      const u32 lane = simt::trailing_zeros(votes);
      return begin + 8 * lane + simt::shuffle(same, lane);
    }
  }

  // Position plus 1, by hash of kMinMatch bytes. The last of 64 KiB starts no match.
  alignas(16) u16 table_[kSlots];
};

}  // namespace headrace::SIMT_SPACE
