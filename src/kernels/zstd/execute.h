#pragma once

// Turns records and literals into bytes, a tile of a block at a time: each byte of the tile gets an
// entry in shared memory, which is its value or where to look for it.
// https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.4: literals first, then the match, which may
// reach into its own output.

#include "kernels/common/access.h"
#include "kernels/zstd/format.h"

namespace headrace::SIMT_SPACE::zstd {

struct ExecuteWork {
  const Source* sources;
  const Block* blocks;
  const PlacedBlock* placed;
  const Record* records;
  const u8* literals;
  const u32* faults;
};

inline constexpr u32 kValue = 0x80000000;

template <u32 kBytes>
struct TileMemory {
  static constexpr u32 kNbytes = kBytes;
  static_assert(kBytes % 16 == 0);
  alignas(16) u32 entries[kBytes];
  // Long runs, for whole warps: first entry, length, source in the literals, 0; or first entry,
  // length, start of the match, offset.
  simt::Quad runs[kBytes / 16];
  u32 run_count;
  u32 next_record;
};
// A longer run goes to the list, in pieces.
inline constexpr i32 kShortRun = 24, kRunPiece = 512;

// Positions are relative to the block.
struct BlockView {
  const Record* records;
  u32 record_count;
  const u8* literals;
  RepeatOffsets repeats;
  u8* target;
  u32 start;  // in the whole target
  u32 nbytes;
  u32 target_left;  // bytes from `target` to the end of the whole one
};
SIMT_DEVICE BlockView view_block(const ExecuteWork& work, u32 index) {
  const Block& block = work.blocks[index];
  const Source& source = work.sources[block.source];
  const PlacedBlock& placed = work.placed[index];
  BlockView view;
  view.records = work.records + block.records;
  view.record_count = block.record_count;
  view.literals = block.literal_kind == Literals::stored ? source.data + block.literals_at
                                                         : work.literals + block.literals;
  view.repeats = placed.repeats;
  view.target = source.target + placed.start;
  view.start = placed.start;
  view.nbytes = record_match(view.records[view.record_count - 1]);
  view.target_left = source.target_nbytes - placed.start;
  return view;
}

// Where the literals of a record start.
SIMT_DEVICE i32 record_start(const Record* records, u32 i) {
  const u32 used = i ? record_literals(records[i - 1]) : 0;
  return static_cast<i32>(record_match(records[i]) - (record_literals(records[i]) - used));
}

SIMT_DEVICE u64 load_bytes(const u8* p) {  // 8, at any address; reads up to 11
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const u32* const words = reinterpret_cast<const u32*>(address & ~std::uintptr_t{3});
  const u32 shift = static_cast<u32>(address & 3) * 8;
  const u32 a = words[0], b = words[1], c = words[2];
  return u64{simt::funnel_right(b, c, shift)} << 32 | simt::funnel_right(a, b, shift);
}

// A run that is worth no entries, because all of it is made alike: literals, or a match of which
// every quad is the same.
struct LongRun {
  i32 begin, end;
  i32 offset;  // 0: literals
};
inline constexpr i32 kLongRun = 1024;
// To look for them costs a tile a few loads: only with fewer than a record for so many bytes.
inline constexpr u32 kSparse = 512;

// The first long run of a record from `at` on; at the end of the block if there is none.
SIMT_DEVICE LongRun find_long_run(const BlockView& block, u32 i, i32 at) {
  const LongRun none{static_cast<i32>(block.nbytes), static_cast<i32>(block.nbytes), 0};
  const i32 match = static_cast<i32>(record_match(block.records[i]));
  if (match - at >= kLongRun) return {at, match, 0};
  if (i + 1 == block.record_count) return none;
  const u32 offset = match_offset(block.records[i], block.repeats);
  const i32 begin = at > match ? at : match, end = record_start(block.records, i + 1);
  if (end - begin < kLongRun || offset > 16 || 16 % offset != 0) return none;
  return {begin, end, static_cast<i32>(offset)};
}

// By all threads of the CTA, which have written what is before.
template <unsigned kThreads>
SIMT_DEVICE void copy_long_run(const BlockView& block, const LongRun& run, u32 i) {
  u8* const to = block.target + run.begin;
  const u32 nbytes = static_cast<u32>(run.end - run.begin);
  if (run.offset == 0) {
    const Record record = block.records[i];
    const u32 left = record_match(record) - static_cast<u32>(run.begin);
    copy_bytes<kThreads>(to, block.literals + (record_literals(record) - left), nbytes);
    return;
  }
  const u8* const from = to - run.offset;
  const u32 mask = static_cast<u32>(run.offset) - 1, head = (0 - misalignment(to, 16)) % 16;
  u32 words[4] = {};
  SIMT_UNROLL
  for (u32 k = 0; k < 16; ++k) words[k / 4] |= u32{from[(head + k) & mask]} << k % 4 * 8;
  const u32 thread = simt::thread_index(), tail = head + (nbytes - head) / 16 * 16;
  for (u32 at = head + 16 * thread; at < tail; at += 16 * kThreads)
    *reinterpret_cast<simt::Quad*>(to + at) = {words[0], words[1], words[2], words[3]};
  if (thread < head) to[thread] = from[thread & mask];
  if (thread < nbytes - tail) to[tail + thread] = from[(tail + thread) & mask];
}

// The part [begin, end) of a block, with entries for positions from `origin`. Bytes below `floor`
// are in the target already; an entry for a later one is its position plus `add`.
struct TileBounds {
  i32 origin, begin, end, floor, add;
};

template <unsigned kThreads, class Memory>
class TileFiller {
 public:
  SIMT_DEVICE TileFiller(Memory& tile, const BlockView& block, const TileBounds& bounds)
      : tile_(tile), block_(block), bounds_(bounds) {}

  // Fills the entries, given the last record that starts at or before `begin`. tile.next_record
  // becomes the last one that starts at or before `end`. By all threads of the CTA.
  SIMT_DEVICE void fill(u32 first_record) {
    const u32 thread = simt::thread_index();
    if (thread == 0) {
      tile_.run_count = 0;
      tile_.next_record = first_record;
    }
    simt::sync_cta();
    u32 last = first_record;
    for (u32 i = first_record + thread; i < block_.record_count; i += kThreads) {
      const i32 start = record_start(block_.records, i);
      if (start > bounds_.end) break;
      last = i;
      if (start == bounds_.end) break;
      put_sequence(i, start);
    }
    if (last > first_record) simt::atomic_max(&tile_.next_record, last);
    simt::sync_cta();
    const u32 runs = tile_.run_count;
    for (u32 i = simt::warp_index(); i < runs; i += kThreads / simt::kWarp) put_run(tile_.runs[i]);
    simt::sync_cta();
  }

 private:
  SIMT_DEVICE static i32 max(i32 a, i32 b) { return a > b ? a : b; }
  SIMT_DEVICE static i32 min(i32 a, i32 b) { return a < b ? a : b; }

  SIMT_DEVICE u32& entry_at(i32 position) { return tile_.entries[position - bounds_.origin]; }

  SIMT_DEVICE void put_sequence(u32 i, i32 start) {
    const Record record = block_.records[i];
    const i32 match = static_cast<i32>(record_match(record));
    const i32 literals_end = static_cast<i32>(record_literals(record));
    put_literals(max(start, bounds_.begin), min(match, bounds_.end), literals_end - match);
    if (i + 1 == block_.record_count || match >= bounds_.end) return;
    const i32 match_end = record_start(block_.records, i + 1);
    put_match(max(match, bounds_.begin),
              min(match_end, bounds_.end),
              match,
              match_end,
              static_cast<i32>(match_offset(record, block_.repeats)));
  }

  SIMT_DEVICE void put_long(i32 begin, i32 end, i32 from, i32 from_step, i32 offset) {
    for (; begin < end; begin += kRunPiece, from += from_step)
      tile_.runs[simt::atomic_add(&tile_.run_count, 1u)] = {
          static_cast<u32>(begin - bounds_.origin),
          static_cast<u32>(min(kRunPiece, end - begin)),
          static_cast<u32>(from),
          static_cast<u32>(offset)};
  }

  // Literal of position p: p + shift.
  SIMT_DEVICE void put_literals(i32 begin, i32 end, i32 shift) {
    if (end - begin > kShortRun) {
      put_long(begin, end, begin + shift, kRunPiece, 0);
      return;
    }
    for (; begin < end; begin += 8) {
      const u64 bytes = load_bytes(block_.literals + begin + shift);
      SIMT_UNROLL
      for (i32 k = 0; k < 8; ++k)
        if (begin + k < end) entry_at(begin + k) = kValue | static_cast<u32>(bytes >> 8 * k & 255);
    }
  }

  SIMT_DEVICE void put_match(i32 begin, i32 end, i32 match, i32 match_end, i32 offset) {
    if (end - begin > kShortRun) {
      put_long(begin, end, match, 0, offset);
      return;
    }
    if (offset < match_end - match) {
      for (; begin < end; ++begin)
        entry_at(begin) = entry_of(match - offset + (begin - match) % offset);
      return;
    }
    for (; begin < end; begin += 8) {
      const i32 from = begin - offset;
      u64 bytes = 0;
      if (from < bounds_.floor) bytes = load_target(from);
      SIMT_UNROLL
      for (i32 k = 0; k < 8; ++k)
        if (begin + k < end)
          entry_at(begin + k) = from + k < bounds_.floor
                                    ? kValue | static_cast<u32>(bytes >> 8 * k & 255)
                                    : static_cast<u32>(from + k + bounds_.add);
    }
  }

  SIMT_DEVICE u32 entry_of(i32 from) const {
    return from < bounds_.floor ? kValue | block_.target[from]
                                : static_cast<u32>(from + bounds_.add);
  }

  // What is behind the floor does not matter.
  SIMT_DEVICE u64 load_target(i32 from) const {
    if (static_cast<i64>(from) + 12 <= static_cast<i64>(block_.target_left))
      return load_bytes(block_.target + from);
    u64 bytes = 0;
    for (i32 k = 0; k < 8 && from + k < bounds_.floor; ++k)
      bytes |= u64{block_.target[from + k]} << 8 * k;
    return bytes;
  }

  SIMT_DEVICE void put_run(const simt::Quad& run) {
    u32* const to = tile_.entries + run.x;
    const u32 lane = simt::lane_index();
    if (run.w == 0) {
      constexpr u32 kLoads = 8;  // in flight
      for (u32 i = lane; i < run.y; i += kLoads * simt::kWarp) {
        u32 bytes[kLoads] = {};
        SIMT_UNROLL
        for (u32 k = 0; k < kLoads; ++k)
          bytes[k] = i + k * simt::kWarp < run.y ? block_.literals[run.z + i + k * simt::kWarp] : 0;
        SIMT_UNROLL
        for (u32 k = 0; k < kLoads; ++k)
          if (i + k * simt::kWarp < run.y) to[i + k * simt::kWarp] = kValue | bytes[k];
      }
      return;
    }
    const i32 match = static_cast<i32>(run.z), offset = static_cast<i32>(run.w);
    for (u32 i = lane; i < run.y; i += simt::kWarp) {
      i32 ahead = bounds_.origin + static_cast<i32>(run.x + i) - match;
      if (ahead >= offset) ahead %= offset;
      to[i] = entry_of(match - offset + ahead);
    }
  }

  Memory& tile_;
  const BlockView& block_;
  const TileBounds bounds_;
};

}  // namespace headrace::SIMT_SPACE::zstd
