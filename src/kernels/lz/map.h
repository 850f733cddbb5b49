#pragma once

// The tokens of LZ streams where guesses do not come true (parse.h): in byte planes 3 % of the
// blind starts are still out of step after 1 KiB. Here nothing is guessed:
//
// map    each lane finds, from right to left, where the chain from every byte of its segment leaves
//        the segment. Then a chain from every byte of the group's first segment hops over the
//        segments of the group: its exit, and where it enters each segment, are kept.
// link   one warp a stream follows the true chain from group to group. When it enters a group
//        behind the first segment (after long literals), the segments are settled from there.
// count  every segment is walked from where the true chain enters it, and the tokens are kept.
//
// Then the join of the guesses, which now only adds up, and put makes records of the tokens.

#include "kernels/lz/parse.h"

namespace headrace::SIMT_SPACE {

// Measured on an H200: with 128 bytes a lane, one chunk takes 20 % longer and 1 GiB 10 %; with 32,
// long streams take longer to link.
using LzMapCut = LzCut<64, 32>;

inline constexpr u8 kLzPassed = 255;           // the chain does not enter the segment
inline constexpr u32 kLzVarious = 0x80000000;  // chains leave a group at different positions

// A token as it is kept: its position in the group, and above that where its output begins, which
// is less than 255 bytes a byte before it. As many as LZ4's can be: of byte planes, many groups
// come near it.
inline constexpr u32 kLzPositionBits = 11, kLzKept = 684;
static_assert(LzMapCut::kGroup == 1 << kLzPositionBits && kLzKept > LzMapCut::kGroup / 3);
// Of a group: bytes of its paths, and of the tokens that take their place.
inline constexpr u32 kLzPaths = kLzKept * sizeof(u32);
static_assert(kLzPaths >= LzMapCut::kGroup && kLzPaths % 16 == 0);

// Bytes of the tables below, a group, without those of `tables`.
inline constexpr u32 kLzMapTables = kLzPaths + (LzMapCut::kSegment + 2) * sizeof(u32);

struct LzMapTables {
  LzTables tables;
  u32* exits;    // of a group: LzMapCut::kSegment, of the chains from there
  u8* paths;     // of a group: for each segment, where each of these chains enters it
  u32* common;   // of a group: the exit of all chains, or kLzVarious
  u32* entries;  // of a group: where the true chain is when it reaches the group
};

// A run of bytes of 255 whose length is known.
struct LzKnownRun {
  u32 n;     // without the byte that ends it
  u32 last;  // that byte

  SIMT_DEVICE u32 operator()(const u8*, u32& x, u32 end) const {
    if (end - x <= n) {
      x = end + 1;
      return 0;
    }
    x += n + 1;
    return (n < kMostOf255 ? n : kMostOf255) * 255 + last;
  }

  // The run at x, which may be beyond the end.
  SIMT_DEVICE static LzKnownRun at(const u8* p, u32 x, u32 end) {
    if (x >= end) return {0, 0};
    u32 after = x;
    add_run(p, after, end);
    if (after > end) return {end - x, 0};
    return {after - x - 1, simt::load_constant(p + after - 1)};
  }
  // The same with one byte more in front.
  SIMT_DEVICE LzKnownRun after(u32 byte) const {
    return byte == 255 ? LzKnownRun{n + 1, last} : LzKnownRun{0, byte};
  }
};

template <class Dialect>
struct LzMap {
  using Cut = LzMapCut;
  static constexpr unsigned kThreads = 128;
  static constexpr u32 kColumns = Cut::kSegment / simt::kWarp;  // of a lane
  using Entered = u16;                                          // of a lane, a byte a column
  static_assert(sizeof(Entered) == kColumns);
  static constexpr u16 kFar = 65535;  // too far to be told, or a bad end: walk
  struct Shared {
    // Of a byte: where its chain leaves the segment, from the segment's start on. Padded, so that
    // lanes at the same byte of theirs use different banks.
    u16 leaves[kThreads / simt::kWarp][Cut::kSegments][Cut::kSegment + 2];
  };
  LzMapTables map;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const u32 group = simt::cta_index() * (kThreads / simt::kWarp) + simt::warp_index();
    if (group >= map.tables.n_groups) return;
    const LzBatch& batch = map.tables.batch;
    const LzStream stream = batch.streams[find_stream<&LzStream::first_group>(batch, group)];
    const u32 base = (group - stream.first_group) * Cut::kGroup;
    auto& leaves = shared.leaves[simt::warp_index()];
    map_segment(stream.source,
                base + simt::lane_index() * Cut::kSegment,
                stream.source_nbytes,
                leaves[simt::lane_index()]);
    simt::sync_warp();
    hop(stream.source, base, stream.source_nbytes, leaves, group);
  }

  SIMT_DEVICE static void map_segment(const u8* p, u32 low, u32 end, u16* leaves) {
    if (low >= end) return;
    LzKnownRun run = LzKnownRun::at(p, low + Cut::kSegment, end);
    const u32 shift = static_cast<u32>(reinterpret_cast<std::uintptr_t>(p + low) & 3);
    const u32* words = reinterpret_cast<const u32*>(p + low - shift);
    const u32 n = end - low < Cut::kSegment ? end - low : Cut::kSegment;
    const u32 n_words = (n + 3) / 4;
    u32 high = simt::load_constant(words + n_words);
    for (u32 w = n_words; w-- > 0;) {
      const u32 word_low = simt::load_constant(words + w);
      const u32 word = simt::funnel_right(word_low, high, 8 * shift);
      high = word_low;
      SIMT_UNROLL
      for (u32 k = 4; k-- > 0;) {
        const u32 i = 4 * w + k;
        if (i >= n) continue;
        const u32 token = word >> 8 * k & 255;
        const LzStep step = Dialect::step(token, p, low + i, end, run);
        const u32 to = step.next - low;
        leaves[i] = to < n                          ? leaves[to]
                    : step.next <= end && to < kFar ? static_cast<u16>(to)
                                                    : kFar;
        run = run.after(token);
      }
    }
  }

  SIMT_DEVICE void hop(
      const u8* p, u32 base, u32 end, const u16 (*leaves)[Cut::kSegment + 2], u32 group) const {
    const u32 lane = simt::lane_index();
    u32 at[kColumns];
    for (u32 k = 0; k < kColumns; ++k) at[k] = base + kColumns * lane + k;
    auto* path = reinterpret_cast<Entered*>(map.paths + u64{group} * kLzPaths) + lane;
    for (u32 s = 0; s < Cut::kSegments; ++s, path += simt::kWarp) {
      const u32 low = base + s * Cut::kSegment;
      u32 entered = 0;
      SIMT_UNROLL
      for (u32 k = 0; k < kColumns; ++k) {
        const u32 i = at[k] - low;
        const bool enters = i < Cut::kSegment && at[k] < end;
        entered |= (enters ? i : kLzPassed) << 8 * k;
        if (!enters) continue;
        const u32 leave = leaves[s][i];
        at[k] = leave == kFar ? walk(p, at[k], low + Cut::kSegment, end) : low + leave;
      }
      *path = static_cast<Entered>(entered);
    }
    bool same = true;
    const u32 first = simt::shuffle(at[0], 0);
    SIMT_UNROLL
    for (u32 k = 0; k < kColumns; ++k) {
      same &= at[k] == first || base + kColumns * lane + k >= end;
      map.exits[u64{group} * Cut::kSegment + kColumns * lane + k] = at[k];
    }
    same = simt::all(same);
    if (lane == 0) map.common[group] = same ? first : kLzVarious;
  }

  SIMT_DEVICE_NOINLINE static u32 walk(const u8* p, u32 x, u32 stop, u32 end) {
    LzStretch stretch{x, 0, 0, 0};
    follow<Dialect>(p, end, stop < end ? stop : end, stretch);
    return stretch.exit;
  }
};

// One warp a stream.
template <class Dialect>
struct LzLink {
  using Cut = LzMapCut;
  static_assert(Cut::kSegments == simt::kWarp);
  static constexpr unsigned kThreads = 32;
  using Shared = simt::NoShared;
  LzMapTables map;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 lane = simt::lane_index();
    const LzStream stream = map.tables.batch.streams[simt::cta_index()];
    const u32 end = stream.source_nbytes, n = (end + Cut::kGroup - 1) / Cut::kGroup;
    const u32* common = map.common + stream.first_group;
    u32 at = Dialect::start(stream);
    u32 next = lane < n ? common[lane] : 0;
    for (u32 done = 0; done < n; done += simt::kWarp) {
      const u32 low = (done + lane) * Cut::kGroup;
      const bool live = done + lane < n;
      u32 exit = next, entry, known = kLzVarious;  // the entry that `exit` is of
      bool any_entry = exit != kLzVarious;         // of the first segment
      if (done + simt::kWarp + lane < n) next = common[done + simt::kWarp + lane];
      for (;;) {
        entry = from_left(exit, at);
        const bool good = entry == known || (any_entry && entry - low < Cut::kSegment);
        const u32 open = simt::ballot(live && !good);
        if (!open) break;
        const u32 k = simt::trailing_zeros(open), from = simt::shuffle(entry, k);
        const u32 to = pass(stream, done + k, from);
        if (lane == k) {
          known = from;
          exit = to;
          any_entry = false;
        }
      }
      if (live) map.entries[stream.first_group + done + lane] = entry;
      at = simt::shuffle(exit, n - 1 - done < 31 ? n - 1 - done : 31);
    }
  }

  // Where the chain that reaches group `index` at x leaves it.
  SIMT_DEVICE u32 pass(const LzStream& stream, u32 index, u32 x) const {
    const u32 low = index * Cut::kGroup, end = stream.source_nbytes;
    if (x >= end || x - low >= Cut::kGroup) return x;
    const u64 group = stream.first_group + index;
    if (x - low < Cut::kSegment) return map.exits[group * Cut::kSegment + x - low];
    return enter_behind(stream.source, low, end, group, x);
  }

  // The path goes to column 0, whose own path is the guess to begin with.
  SIMT_DEVICE u32 enter_behind(const u8* p, u32 group_low, u32 end, u64 group, u32 x) const {
    const u32 lane = simt::lane_index(), low = group_low + lane * Cut::kSegment;
    const u32 stop = low >= end ? end : end - low < Cut::kSegment ? end : low + Cut::kSegment;
    u8* path = map.paths + group * kLzPaths + lane * Cut::kSegment;
    const u32 guess = *path, entered = simt::ballot(guess != kLzPassed);
    const u32 later = entered & ~(~u32{0} >> (31 - lane));
    const u32 to = simt::shuffle(low + guess, simt::trailing_zeros(later) & 31);
    LzStretch stretch{};
    stretch.exit = later ? to : map.exits[group * Cut::kSegment];
    stretch.entry = guess == kLzPassed ? stretch.exit : low + guess;
    if (stop <= x) {
      stretch.entry = stretch.exit = x;
    } else if (low <= x) {
      stretch.entry = x;
      follow<Dialect>(p, end, stop, stretch);
    }
    settle<Dialect>(p, end, stop, x, stretch);
    *path = stretch.entry < stop ? static_cast<u8>(stretch.entry - low) : kLzPassed;
    return simt::shuffle(stretch.exit, 31);
  }
};

template <class Dialect>
struct LzCount {
  using Cut = LzMapCut;
  static constexpr unsigned kThreads = 128;
  static constexpr u32 kMost = Cut::kSegment / Dialect::kMinToken + 1;
  struct Shared {
    struct {
      u32 of_lane[kMost][simt::kWarp];
      u32 of_group[kLzKept];
    } warps[kThreads / simt::kWarp];
  };
  LzMapTables map;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const u32 index = simt::cta_index() * (kThreads / simt::kWarp) + simt::warp_index();
    if (index >= map.tables.n_groups) return;
    const u32 lane = simt::lane_index();
    auto& kept = shared.warps[simt::warp_index()];
    const LzBatch& batch = map.tables.batch;
    const LzStream stream = batch.streams[find_stream<&LzStream::first_group>(batch, index)];
    const u32 base = (index - stream.first_group) * Cut::kGroup;
    LzStretch stretch = enter(index, base, stream.source_nbytes);
    walk(stream, base, stretch, kept.of_lane);
    map.tables.segments[u64{index} * Cut::kSegments + lane] = stretch;

    const u32 walked = simt::ballot(stretch.tokens != 0);
    const u32 exit = simt::shuffle(stretch.exit, walked ? 31 - simt::leading_zeros(walked) : 0);
    const u32 before = simt::inclusive_sum(stretch.tokens) - stretch.tokens;
    const u32 start = simt::inclusive_sum(stretch.nbytes) - stretch.nbytes;
    const u32 tokens = simt::shuffle(before + stretch.tokens, 31);
    const u32 nbytes = saturating_sum(stretch.nbytes);
    if (lane == 0) map.tables.groups[index] = {map.entries[index], exit, tokens, nbytes};
    if (tokens > kLzKept) return;
    for (u32 i = 0; i < stretch.tokens; ++i)
      kept.of_group[before + i] = kept.of_lane[i][lane] + (start << kLzPositionBits);
    simt::sync_warp();
    u32* all = reinterpret_cast<u32*>(map.paths + u64{index} * kLzPaths);
    for (u32 i = lane; i < tokens; i += simt::kWarp) all[i] = kept.of_group[i];
  }

  // Where the true chain enters this lane's segment; without tokens, `exit` is where it passes.
  SIMT_DEVICE LzStretch enter(u32 index, u32 base, u32 end) const {
    const u32 entry = map.entries[index], lane = simt::lane_index();
    if (entry >= end || entry - base >= Cut::kGroup) return {entry, entry, 0, 0};
    const u32 column = entry - base < Cut::kSegment ? entry - base : 0;
    const u32 i = map.paths[u64{index} * kLzPaths + lane * Cut::kSegment + column];
    if (i == kLzPassed) return {entry, entry, 0, 0};
    return {base + lane * Cut::kSegment + i, 0, 0, 0};
  }

  SIMT_DEVICE static void walk(const LzStream& stream,
                               u32 base,
                               LzStretch& stretch,
                               u32 (*kept)[simt::kWarp]) {
    const u32 lane = simt::lane_index(), low = base + lane * Cut::kSegment;
    const u32 end = stream.source_nbytes;
    if (stretch.entry < low) return;
    const u32 stop = end - low < Cut::kSegment ? end : low + Cut::kSegment;
    u32 x = stretch.entry;
    while (x < stop) {
      kept[stretch.tokens++][lane] = (x - base) | stretch.nbytes << kLzPositionBits;
      const LzStep step = step_at<Dialect>(stream.source, x, end);
      stretch.nbytes = saturating_add(stretch.nbytes, step.nbytes);
      x = step.next;
    }
    stretch.exit = x;
  }
};

template <class Dialect>
struct LzPut {
  using Cut = LzMapCut;
  using Write = LzWrite<Dialect, Cut>;
  static constexpr unsigned kThreads = 128;
  using Shared = simt::NoShared;
  LzMapTables map;  // the batch in one of its waves

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 index = simt::cta_index() * (kThreads / simt::kWarp) + simt::warp_index();
    if (index >= map.tables.n_groups || map.tables.batch.is_done()) return;
    const LzBatch& batch = map.tables.batch;
    const u32 w = find_stream<&LzStream::first_group>(batch, index), lane = simt::lane_index();
    const LzRecords of_stream = batch.records_of(w);
    if (of_stream.n == 0) return;
    const LzStream stream = batch.streams[w];
    if (index == stream.first_group && lane == 0) LzBatch::put_end(of_stream, stream);
    const LzStretch group = map.tables.groups[index];
    if (group.tokens == 0) return;
    LzRecord* records = of_stream.first + group.exit;
    // Or had to be repaired, which would be a bug of the map, but not of the bytes.
    if (group.tokens > kLzKept || group.entry != map.entries[index]) {
      const LzStretch stretch = map.tables.segments[u64{index} * Cut::kSegments + lane];
      const u32 before = simt::inclusive_sum(stretch.tokens) - stretch.tokens;
      const u32 start = simt::inclusive_sum(stretch.nbytes) - stretch.nbytes;
      return Write::write(stream, stretch, group.nbytes + start, records + before);
    }
    const u32 base = (index - stream.first_group) * Cut::kGroup;
    const u32* kept = reinterpret_cast<const u32*>(map.paths + u64{index} * kLzPaths);
    for (u32 i = lane; i < group.tokens; i += simt::kWarp)
      records[i] = {group.nbytes + (kept[i] >> kLzPositionBits),
                    base + (kept[i] & (Cut::kGroup - 1))};
  }
};

}  // namespace headrace::SIMT_SPACE
