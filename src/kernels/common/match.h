#pragma once

// Matches for the LZ encoders, greedy: a warp looks at 32 positions at a time, takes the first that
// a match begins at, and goes on behind it. A segment of at most 64 KiB at a time; matches do not
// leave it.

#include "kernels/common/access.h"

namespace headrace::SIMT_SPACE {

struct LzMatch {
  u32 at, nbytes, offset;  // nbytes 0: there is none
};

// `kMinMatch`: 4 to 8 bytes. In shared memory.
template <u32 kMinMatch, u32 kHashBits>
class MatchFinder {
 public:
  // The rest is for all lanes of a warp at once.
  SIMT_DEVICE void clear() {
    for (u32 i = simt::lane_index(); i < 1u << kHashBits; i += simt::kWarp) table_[i] = 0;
    simt::sync_warp();
  }

  // Of positions [at, at + 32) before `starts`, the first that a match begins at. Matches end at
  // `end` at the latest; kMinMatch bytes from each position before `starts` lie before `end`.
  // `repeat`: an offset that 4 equal bytes are enough for; 0: none.
  SIMT_DEVICE LzMatch find(const u8* source, u32 at, u32 starts, u32 end, u32 repeat = 0) {
    const unsigned lane = simt::lane_index();
    const u32 position = at + lane;
    const bool valid = position < starts;
    const u64 key = valid ? load_key(source + position) : 0;
    const u32 slot = hash(key);
    u32 candidate = valid ? table_[slot] : 0;
    if (candidate && load_key(source + (candidate - 1)) != key) candidate = 0;
    // What the table does not know yet: a run that begins in these 32.
    const u64 before = simt::shuffle_up(key, 1);
    if (valid && candidate == 0 && lane > 0 && before == key) candidate = position;
    if (valid && repeat && position >= repeat &&
        load_word(source + (position - repeat)) == static_cast<u32>(key))
      candidate = position - repeat + 1;
    const u32 votes = simt::ballot(candidate != 0);
    const u32 chosen = simt::trailing_zeros(votes);
    put(slot, position, valid && lane <= chosen);
    if (votes == 0) return {};
    const u32 match_at = at + chosen, from = simt::shuffle(candidate, chosen) - 1;
    const u32 more = common(
        source + match_at + kCompared, source + from + kCompared, end - match_at - kCompared);
    return {match_at, kCompared + more, match_at - from};
  }

  // Makes the first 32 positions behind a match's first known too.
  SIMT_DEVICE void insert(const u8* source, const LzMatch& match, u32 starts) {
    const u32 position = match.at + 1 + simt::lane_index();
    const bool wanted = position < match.at + match.nbytes && position < starts;
    put(wanted ? hash(load_key(source + position)) : 0, position, wanted);
  }

 private:
  static constexpr u32 kCompared = 4;

  // Of lanes that want the same slot, which are few, the last one gets it.
  SIMT_DEVICE void put(u32 slot, u32 position, bool wanted) {
    for (bool waiting = wanted; simt::any(waiting);) {
      simt::sync_warp();
      if (waiting) simt::store_relaxed(&table_[slot], static_cast<u16>(position + 1));
      simt::sync_warp();
      waiting = wanted && table_[slot] < position + 1;
    }
    simt::sync_warp();
  }

  SIMT_DEVICE static u64 load_key(const u8* p) {
    if constexpr (kMinMatch == 4) {
      return load_word(p);
    } else {
      const simt::Pair pair = load_pair(p);
      return (u64{pair.y} << 32 | pair.x) << (64 - 8 * kMinMatch) >> (64 - 8 * kMinMatch);
    }
  }
  SIMT_DEVICE static u32 hash(u64 key) {
    if constexpr (kMinMatch == 4)
      return static_cast<u32>(key) * 2654435761u >> (32 - kHashBits);
    else
      return static_cast<u32>(key * 0x9e3779b97f4a7c15 >> (64 - kHashBits));
  }

  // How many bytes are the same, at most `most`.
  SIMT_DEVICE static u32 common(const u8* a, const u8* b, u32 most) {
    for (u32 begin = 0;; begin += 4 * simt::kWarp) {
      const u32 at = begin + 4 * simt::lane_index();
      u32 same = 0;
      if (at + 4 <= most)
        same = simt::trailing_zeros(load_word(a + at) ^ load_word(b + at)) / 8;
      else
        while (at + same < most && a[at + same] == b[at + same]) ++same;
      const u32 votes = simt::ballot(same < 4);
      if (votes == 0) continue;
      const u32 lane = simt::trailing_zeros(votes);
      return begin + 4 * lane + simt::shuffle(same, lane);
    }
  }

  // Position plus 1, by hash of kMinMatch bytes. The last of 64 KiB begins no match.
  u16 table_[1 << kHashBits];
};

}  // namespace headrace::SIMT_SPACE
