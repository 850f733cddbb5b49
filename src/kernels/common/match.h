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

// Of a chunk, fewer than 64 KiB, by positions from `source` on.
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

  // What the lane keeps of the window at `at`.
  SIMT_DEVICE u32 load(u32 at) const {
    const u32 lane = simt::lane_index(), word = at / 4 + lane;
    return lane < kWords && word < count_ ? simt::load_constant(words_ + word) : 0;
  }
  // Bytes [4 word, 4 word + 8) from the lane's position on, of the window that `row` was loaded
  // of; `word` at most 2.
  SIMT_DEVICE simt::Pair eight(u32 row, u32 word) const {
    const u32 from = skip_ + simt::lane_index(), first = from / 4 + word;
    const u32 a = simt::shuffle(row, first), b = simt::shuffle(row, first + 1),
              c = simt::shuffle(row, first + 2);
    return {simt::funnel_right(a, b, from % 4 * 8), simt::funnel_right(b, c, from % 4 * 8)};
  }

 private:
  // The last byte that a lane asks for is 3 + 31 + 16 bytes behind the first word's begin.
  static constexpr u32 kWords = 13;

  u32 skip_;
  const u32* words_;
  u32 count_;
};

// 16 bytes at any address, asked for at once: the aligned words of 8 bytes that they lie in.
class SixteenBytes {
 public:
  SIMT_DEVICE void load(const u8* p) {
    const u32 skip = misalignment(p, 8);
    const simt::Pair* const pairs = reinterpret_cast<const simt::Pair*>(p - skip);
    skip_ = skip;
    a_ = simt::load_constant(pairs);
    b_ = simt::load_constant(pairs + 1);
    if (skip) c_ = simt::load_constant(pairs + 2);
  }
  // How many of them are the same as `first` and `second`, from the first on.
  SIMT_DEVICE u32 same(simt::Pair first, simt::Pair second) const {
    const bool odd = skip_ >= 4;
    const u32 w0 = odd ? a_.y : a_.x, w1 = odd ? b_.x : a_.y, w2 = odd ? b_.y : b_.x,
              w3 = odd ? c_.x : b_.y, w4 = odd ? c_.y : c_.x, bits = 8 * skip_;
    const u32 d0 = simt::funnel_right(w0, w1, bits) ^ first.x,
              d1 = simt::funnel_right(w1, w2, bits) ^ first.y,
              d2 = simt::funnel_right(w2, w3, bits) ^ second.x,
              d3 = simt::funnel_right(w3, w4, bits) ^ second.y;
    const u32 low = d0 ? d0 : d1, high = d2 ? d2 : d3;
    const u32 of_low = (d0 ? 0 : 4) + simt::trailing_zeros(low) / 8;
    const u32 of_high = (d2 ? 8 : 12) + simt::trailing_zeros(high) / 8;
    return low ? of_low : of_high;
  }

 private:
  simt::Pair a_{}, b_{}, c_{};
  u32 skip_ = 0;
};

// In shared memory, of one warp. `kMinMatch`: 4 to 8 bytes. `kTriesRepeat`: the last offset of the
// windows before is tried too, and kMinRepeat bytes are enough for it. To try in the same window
// the offset of each match that is taken would be a load for each, and gains 0.1 %.
template <u32 kMinMatch, u32 kSlots, bool kTriesRepeat>
class MatchFinder {
 public:
  static constexpr u32 kMinRepeat = 4;

  // By a warp: calls take(LzMatches) for every window with a match, from left to right.
  template <class Take>
  SIMT_DEVICE void each_window(const LzSegment& segment, const Take& take) {
    clear();
    Search search{segment, WindowBytes(segment.source, segment.end), 0, segment.begin, 0};
    learn_history(search);
    // Two, of which one is opened while the other is searched. That they change places, and are
    // not copied, spares a wait for what is loaded of them.
    Window even, odd;
    go_to(search, search.next, even, odd);
    while (search.next < segment.starts + simt::kWarp) {
      step(search, even, odd, take);
      step(search, odd, even, take);
    }
  }

 private:
  static constexpr u32 kCompared = 16;  // bytes that lanes compare by themselves
  // What a repeat of the last offset may be shorter by, since it needs no bits for the offset.
  static constexpr u32 kRepeatGain = 2;

  struct Search {
    const LzSegment& segment;
    WindowBytes bytes;
    u32 next;     // window to open; the one before it is searched
    u32 covered;  // the end of the last match
    u32 repeat;   // its offset; 0: there is none
  };

  // Of a window that was looked up, in one of its lanes: the lane's bytes, and those that they may
  // match, which are on their way. Offsets of 0: there are none.
  struct Window {
    u32 row;  // see WindowBytes; of the window that is opened here next
    simt::Pair first, second;
    u32 offset, repeat;
    SixteenBytes there, repeated;
  };

  SIMT_DEVICE void learn_history(Search& search) {
    u32 row = search.bytes.load(0);
    for (; search.next + simt::kWarp <= search.segment.begin; search.next += simt::kWarp) {
      const u32 after = search.bytes.load(search.next + simt::kWarp);
      look_up(search.bytes.eight(row, 0), search.next + simt::lane_index(), true);
      row = after;
    }
  }

  // The next step searches nothing and opens the window at `at`.
  SIMT_DEVICE static void go_to(Search& search, u32 at, Window& now, Window& ahead) {
    search.next = at;
    ahead.row = search.bytes.load(at);
    now.row = search.bytes.load(at + simt::kWarp);
    now.first.x = 0;
    now.offset = now.repeat = 0;
  }

  // Looks the next window up.
  SIMT_DEVICE void open(const Search& search, Window& window) {
    const LzSegment& segment = search.segment;
    const u32 position = search.next + simt::lane_index();
    window.first = search.bytes.eight(window.row, 0);
    window.second = search.bytes.eight(window.row, 2);
    window.row = search.bytes.load(search.next + 2 * simt::kWarp);
    const bool valid = position < segment.starts;
    const u32 known = look_up(window.first, position, valid);
    const bool is_open = valid && position >= search.covered;
    window.offset = is_open && known ? position - (known - 1) : 0;
    if (window.offset) window.there.load(segment.source + (position - window.offset));
    if constexpr (kTriesRepeat) {
      window.repeat = is_open && search.repeat <= position ? search.repeat : 0;
      if (window.repeat) window.repeated.load(segment.source + (position - window.repeat));
    }
  }

  // Opens the next window, and searches the one before it.
  template <class Take>
  SIMT_DEVICE void step(Search& search, Window& now, Window& ahead, const Take& take) {
    const LzSegment& segment = search.segment;
    open(search, ahead);
    const u32 position = search.next - simt::kWarp + simt::lane_index();
    LzMatches found{0, position, static_cast<u8>(now.first.x), 0, 0};
    if (position >= search.covered) compare(segment, now, found);
    choose(segment, search.covered, found);
    if (found.chosen) {
      take(found);
      search.repeat = simt::shuffle(found.offset, highest_lane(found.chosen));
    }
    search.next += simt::kWarp;
    if (search.covered >= search.next + simt::kWarp)
      go_to(search, search.covered & ~(simt::kWarp - 1), ahead, now);
  }

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
    return static_cast<u32>(u64{mixed} * kSlots >> 32);
  }

  // Where the lane's bytes may have been last, plus 1, or 0; then they are known to be here.
  // Of lanes with the same hash each finds the one before it, and the last is known from then on.
  // They are rare, and to ask who has the same takes as long as half of the window: so all write,
  // and only where one of them is lost it is asked.
  SIMT_DEVICE u32 look_up(simt::Pair bytes, u32 position, bool valid) {
    const u32 slot = hash(bytes);
    const u16 here = static_cast<u16>(position + 1);
    u32 found = valid ? table_[slot] : 0;
    simt::sync_warp();
    if (valid) simt::store_relaxed(&table_[slot], here);
    simt::sync_warp();
    if (simt::any(valid && table_[slot] != here)) {
      const u32 lane = simt::lane_index();
      const u32 same = simt::match(valid ? slot : kSlots + lane);
      const u32 before = same & lanes_below(lane);
      if (before) found = position - (lane - highest_lane(before)) + 1;
      if (valid && same >> lane == 1) table_[slot] = here;
    }
    simt::sync_warp();
    return found;
  }

  // What the lane's match is: the candidate of the table, or the last offset's where that is not
  // shorter by more than kRepeatGain. Up to kCompared bytes.
  SIMT_DEVICE static void compare(const LzSegment& segment, const Window& own, LzMatches& found) {
    const u32 most = segment.end - found.position;
    if (own.offset) {
      u32 same = own.there.same(own.first, own.second);
      if (same > most) same = most;
      if (same >= kMinMatch) {
        found.nbytes = same;
        found.offset = own.offset;
      }
    }
    if constexpr (kTriesRepeat) {
      if (own.repeat) {
        u32 same = own.repeated.same(own.first, own.second);
        if (same > most) same = most;
        if (same >= kMinRepeat && same + kRepeatGain >= found.nbytes) {
          found.nbytes = same;
          found.offset = own.repeat;
        }
      }
    }
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

  // Position plus 1, by hash of kMinMatch bytes.
  alignas(16) u16 table_[kSlots];
};

}  // namespace headrace::SIMT_SPACE
