#pragma once

// From the records of LZ streams to their bytes. A tile of output is made in shared memory, one
// entry a byte: its value, or where to copy it from. Threads take bytes, not tokens, so that all
// have the same to do: a bit map of where tokens begin tells each word which token it is of.
//
// Two ways from there:
//
// order: one CTA makes a stream, tile after tile. Copies from earlier tiles are values.
// jump:  all tiles of all streams at once. Entries that point before their tile go to device
//        memory (4 bytes a byte), and a second kernel follows each to its value: for few streams.
//
// Positions are counted from the target rounded down to 4, so that words of it are aligned.

#include "kernels/common/access.h"
#include "kernels/common/fault.h"
#include "kernels/lz/stream.h"

namespace headrace::SIMT_SPACE {

struct LzView {
  const u8* source;
  u8* base;  // aligned
  u32 source_nbytes;
  u32 begin, end;  // the target from `base` on
};

SIMT_DEVICE LzView view_of(const LzStream& stream) {
  const u32 shift = static_cast<u32>(reinterpret_cast<std::uintptr_t>(stream.target) & 3);
  return {stream.source,
          stream.target - shift,
          stream.source_nbytes,
          shift,
          shift + stream.target_nbytes};
}

// A token: the byte at p is a literal, at `literals` + p of the source (modulo 2^32), or from
// `match` on one of the `distance` bytes before the match.
struct alignas(16) LzItem {
  u32 match;
  u32 literals;
  u32 distance;
  u32 reciprocal;  // (2^32 - 1) / distance

  // A match repeats the bytes before it, so a byte of it is one of those and never its own.
  SIMT_DEVICE u32 source_of(u32 p) const {
    const u32 i = p - match;
    // The quotient may be too small by one: i is below 2^31.
    const u32 rest = i - static_cast<u32>(u64{i} * reciprocal >> 32) * distance;
    return match - distance + (rest < distance ? rest : rest - distance);
  }
};

template <class EntryType, u32 nbytes>
struct LzTileMemory {
  using Entry = EntryType;
  static constexpr u32 kNbytes = nbytes;
  static constexpr u32 kValue = 1u << (8 * sizeof(Entry) - 1);  // | the byte: not a position
  static constexpr u32 kItems = nbytes / 8;                     // at once; most tiles have fewer
  static constexpr u32 kShare = 1024;  // bytes of a warp: a word of the bit map a lane
  static constexpr u32 kThreads = nbytes / kShare * simt::kWarp;

  alignas(16) Entry entries[nbytes];
  LzItem items[kItems];
  u32 starts[nbytes / 32];           // bit map of the bytes that items begin with
  u32 first_items[nbytes / kShare];  // the item of each share's first byte
  u32 next;                          // record that gives what comes behind
  u32 malformed;

  SIMT_DEVICE void clear() {
    for (u32 i = simt::thread_index(); i < nbytes / 32; i += kThreads) starts[i] = 0;
    if (simt::thread_index() == 0) malformed = 0;
    simt::sync_cta();
  }
};

// Fills a tile, by all threads of its CTA. Entries are values or positions, of jump in the
// stream and else in the tile.
template <class Dialect, bool jump, class Memory>
struct LzFill {
  using Entry = typename Memory::Entry;

  Memory& tile;
  LzView view;
  u32 low;    // position of the tile's first entry
  u32 known;  // the target before it is written

  // Positions [begin, end) of the tile, from the records that begin with `first`, the one that
  // gives `begin`; then `first` is the one that gives `end`. False: a token breaks the format.
  SIMT_DEVICE bool operator()(
      const LzRecord* records, u32 n, u32 begin, u32 end, u32& first) const {
    for (;;) {
      const u32 behind = first + Memory::kItems;
      u32 stop = behind < n ? records[behind].start + view.begin : end;
      if (stop > end) stop = end;
      read_items(records + first, behind < n ? Memory::kItems : n - first, begin, stop, first);
      simt::sync_cta();
      if (tile.malformed) return false;
      put_entries(begin, stop);
      first = tile.next;
      simt::sync_cta();
      if (stop == end) return true;
      begin = stop;
    }
  }

 private:
  // Of `n` records, those that give bytes of [begin, end).
  SIMT_DEVICE void read_items(const LzRecord* records, u32 n, u32 begin, u32 end, u32 first) const {
    for (u32 i = simt::thread_index(); i < n; i += Memory::kThreads) {
      const LzRecord record = records[i];
      const u32 start = record.start + view.begin, stop = records[i + 1].start + view.begin;
      if (start >= end) return;
      const LzParts parts = Dialect::parts(view.source, record.token, view.source_nbytes);
      const u32 match = start + parts.literal_nbytes;
      if (match < stop && !allowed(match, stop, parts.distance)) tile.malformed = 1;
      tile.items[i] = {match,
                       parts.literals - start,
                       parts.distance,
                       parts.distance ? ~u32{0} / parts.distance : 0};
      if (start > begin) {
        const u32 at = start - low;
        simt::atomic_or(&tile.starts[at / 32], 1u << at % 32);
      }
      u32 share = start > begin ? (start - low + Memory::kShare - 1) / Memory::kShare
                                : (begin - low) / Memory::kShare;
      const u32 own = stop < end ? stop : end;
      for (; low + share * Memory::kShare < own; ++share) tile.first_items[share] = i;
      if (stop >= end) tile.next = first + i + (stop == end);
    }
  }

  SIMT_DEVICE bool allowed(u32 match, u32 stop, u32 distance) const {
    const u32 at = match - view.begin;
    return distance != 0 && distance <= at &&
           Dialect::allows(at, stop - match, view.end - view.begin);
  }

  // A warp a share, a lane a word of it, several times.
  SIMT_DEVICE void put_entries(u32 begin, u32 end) const {
    const u32 lane = simt::lane_index(), warp = simt::warp_index();
    const u32 share = low + warp * Memory::kShare;
    if (share >= end || share + Memory::kShare <= begin) return;
    u32& word = tile.starts[warp * simt::kWarp + lane];
    const u32 starts = lane ? word : word & ~1u;  // first_items tells of the first byte
    word = 0;
    const u32 count = simt::popcount(starts);
    const u32 before = tile.first_items[warp] + simt::inclusive_sum(count) - count;
    constexpr u32 kPass = 4 * simt::kWarp;
    SIMT_NO_UNROLL
    for (u32 pass = 0; pass < Memory::kShare / kPass; ++pass) {
      const u32 owner = kPass / 32 * pass + lane / 8, bit = 4 * (lane % 8);
      const u32 of_word = simt::shuffle(starts, owner), to_word = simt::shuffle(before, owner);
      const u32 index = to_word + simt::popcount(of_word & ((2u << bit) - 1));
      const u32 p = share + pass * kPass, p_end = p + kPass;
      if (p >= begin && p_end <= end) {
        if (!put_literals(p + 4 * lane, index, of_word >> bit))
          put_four<true>(p + 4 * lane, begin, end, index, of_word >> bit);
      } else if (p < end && p_end > begin) {
        put_four<false>(p + 4 * lane, begin, end, index, of_word >> bit);
      }
    }
  }

  // The four entries from p on, where those of every lane are literals of one token: such passes
  // are most of a stream that hardly shrinks, and take a word where others take four times a token
  // and a byte. False: some are not, and nothing is done. `starts` as below.
  SIMT_DEVICE bool put_literals(u32 p, u32 index, u32 starts) const {
    const LzItem& item = tile.items[index];
    if (!simt::all(p + 4 <= item.match && (starts & 14) == 0)) return false;
    const u32 word = load_word(view.source + static_cast<u32>(item.literals + p));
    u32 entries[4];
    SIMT_UNROLL
    for (u32 k = 0; k < 4; ++k) entries[k] = Memory::kValue | (word >> 8 * k & 255);
    store_four(tile.entries + (p - low), entries);
    return true;
  }

  // The entries from p on, as far as they lie in [begin, end). `index`: the item of the first,
  // `starts`: a bit each, whether a new one begins with it.
  template <bool whole>
  SIMT_DEVICE void put_four(u32 p, u32 begin, u32 end, u32 index, u32 starts) const {
    const auto wanted = [&](u32 k) { return whole || p + k - begin < end - begin; };
    if (!whole && (p >= end || p + 4 <= begin)) return;
    const u8* from[4];
    u32 entries[4];
    LzItem item = tile.items[index];
    SIMT_UNROLL
    for (u32 k = 0; k < 4; ++k) {
      if (k && starts >> k & 1) item = tile.items[++index];
      const bool literal = p + k < item.match;
      const u32 source = item.source_of(p + k);
      from[k] =
          literal ? view.source + static_cast<u32>(item.literals + p + k) : view.base + source;
      entries[k] = literal || source < known ? Memory::kValue : jump ? source : source - low;
    }
    SIMT_UNROLL
    for (u32 k = 0; k < 4; ++k)
      if (wanted(k) && entries[k] == Memory::kValue) entries[k] |= *from[k];
    Entry* const to = tile.entries + (p - low);
    if constexpr (whole) {
      store_four(to, entries);
    } else {
      for (u32 k = 0; k < 4; ++k)
        if (wanted(k)) to[k] = static_cast<Entry>(entries[k]);
    }
  }

  SIMT_DEVICE static void store_four(u16* to, const u32* entries) {
    *reinterpret_cast<simt::Pair*>(to) = {entries[0] | entries[1] << 16,
                                          entries[2] | entries[3] << 16};
  }
  SIMT_DEVICE static void store_four(u32* to, const u32* entries) {
    *reinterpret_cast<simt::Quad*>(to) = {entries[0], entries[1], entries[2], entries[3]};
  }
};

// One CTA a stream.
template <class Dialect, u32 tile_nbytes>
struct LzOrder {
  using Memory = LzTileMemory<u16, tile_nbytes>;
  static constexpr unsigned kThreads = Memory::kThreads;
  static constexpr unsigned kMinCtas = 1280 / kThreads ? 1280 / kThreads : 1;
  static constexpr bool kOnlyWhereItFits = tile_nbytes > 4096;
  using Shared = Memory;
  LzBatch batch;

  SIMT_DEVICE void operator()(Shared& tile) const {
    const LzStream stream = batch.streams[simt::cta_index()];
    const auto [records, n] = batch.records_of(simt::cta_index());
    if (n == 0) return;
    const LzView view = view_of(stream);
    tile.clear();
    u32 first = 0;
    for (u32 begin = view.begin, low = 0; begin < view.end; low += tile_nbytes) {
      const u32 room = view.end - low, end = low + (room < tile_nbytes ? room : tile_nbytes);
      if (!LzFill<Dialect, false, Memory>{tile, view, low, low}(records, n, begin, end, first)) {
        if (simt::thread_index() == 0) raise(batch.faults, stream.chunk, Fault::malformed);
        return;
      }
      for (u32 p = low + 4 * simt::thread_index(); p < end; p += 4 * kThreads)
        write(tile, view, p, tile.entries + (p - low), begin, end);
      begin = end;
    }
  }

  // The word at p, as far as it lies in [begin, end). Values are left for those who come later.
  SIMT_DEVICE static void write(
      const Memory& tile, const LzView& view, u32 p, u16* entries, u32 begin, u32 end) {
    if (p >= begin && p + 4 <= end) {
      auto* const place = reinterpret_cast<simt::Pair*>(entries);
      const simt::Pair pair = *place;
      const u32 a = value(tile, pair.x & 0xffff), b = value(tile, pair.x >> 16),
                c = value(tile, pair.y & 0xffff), d = value(tile, pair.y >> 16);
      constexpr u32 kValues = Memory::kValue | Memory::kValue << 16;
      if ((pair.x & pair.y & kValues) != kValues)
        simt::store_relaxed(place, simt::Pair{a | b << 16, c | d << 16});
      *reinterpret_cast<u32*>(view.base + p) = simt::permute_bytes(
          simt::permute_bytes(a, b, 0x40), simt::permute_bytes(c, d, 0x40), 0x5410);
      return;
    }
    for (u32 k = 0; k < 4; ++k)
      if (p + k >= begin && p + k < end)
        view.base[p + k] = static_cast<u8>(value(tile, entries[k]));
  }

  SIMT_DEVICE static u32 value(const Memory& tile, u32 entry) {
    while (!(entry & Memory::kValue)) entry = simt::load_relaxed(tile.entries + entry);
    return entry;
  }
};

// Bytes of a jump tile's entries.
inline constexpr u32 kLzJumpTileEntries = 16384 * sizeof(u32);

// Tiles of jump are numbered over all streams. Those from `first` on have their entries in that
// order, those before are written.
struct LzJumpTiles {
  using Memory = LzTileMemory<u32, 16384>;
  static constexpr u32 kNbytes = Memory::kNbytes, kThreads = Memory::kThreads;
  static_assert(kNbytes * sizeof(u32) == kLzJumpTileEntries);
  LzBatch batch;
  u32* entries;
  u32 first;

  SIMT_HOST_DEVICE static u32 count(u32 target_nbytes) {
    return (target_nbytes + 3 + kNbytes - 1) / kNbytes;
  }
  // The entry of a stream's position 0, which may be that of a tile before.
  SIMT_DEVICE u32* entries_of(const LzStream& stream) const {
    return entries + (i64{stream.first_tile} - first) * kNbytes;
  }
  SIMT_DEVICE u32 written(const LzStream& stream) const {
    return first > stream.first_tile ? (first - stream.first_tile) * kNbytes : 0;
  }
};

// Every tile, resolved inside itself. Values are left for those who come later.
template <class Dialect>
struct LzExpand {
  static constexpr unsigned kThreads = LzJumpTiles::kThreads;
  static constexpr unsigned kMinCtas = 2;
  static constexpr bool kOnlyWhereItFits = true;  // Tuning has no jumps elsewhere
  using Shared = LzJumpTiles::Memory;
  LzJumpTiles tiles;

  SIMT_DEVICE void operator()(Shared& tile) const {
    const LzBatch& batch = tiles.batch;
    if (batch.is_done()) return;
    const u32 index = tiles.first + simt::cta_index();
    const u32 w = find_stream<&LzStream::first_tile>(batch, index);
    const auto [records, n] = batch.records_of(w);
    const LzStream stream = batch.streams[w];
    const LzView view = view_of(stream);
    const u32 low = (index - stream.first_tile) * Shared::kNbytes;
    const u32 begin = low ? low : view.begin;
    if (n == 0 || stream.target_nbytes == 0 || low >= view.end) return;
    const u32 room = view.end - low, end = low + (room < Shared::kNbytes ? room : Shared::kNbytes);
    u32 first = simt::last_at_or_before(
        n, begin - view.begin, [of_stream = records](u32 i) { return of_stream[i].start; });
    tile.clear();
    const LzFill<Dialect, true, Shared> fill{tile, view, low, tiles.written(stream)};
    const bool good = fill(records, n, begin, end, first);
    if (!good && simt::thread_index() == 0) raise(batch.faults, stream.chunk, Fault::malformed);
    u32* const out = tiles.entries_of(stream);
    for (u32 p = low + 4 * simt::thread_index(); p < end; p += 4 * kThreads) {
      u32 entries[4];
      SIMT_UNROLL
      for (u32 k = 0; k < 4; ++k) {
        u32& entry = entries[k] = Shared::kValue;
        if (!good || p + k - begin >= end - begin) continue;
        u32& place = tile.entries[p + k - low];
        entry = place;
        if (entry & Shared::kValue || entry < low) continue;
        do entry = simt::load_relaxed(tile.entries + (entry - low));
        while (!(entry & Shared::kValue) && entry >= low);
        simt::store_relaxed(&place, entry);
      }
      *reinterpret_cast<simt::Quad*>(out + p) = {entries[0], entries[1], entries[2], entries[3]};
    }
  }
};

// Every byte, followed to its value. Several CTAs a tile: a thread waits for each hop.
struct LzChase {
  static constexpr unsigned kThreads = LzJumpTiles::kThreads;
  static constexpr u32 kParts = 4;  // of a tile
  static constexpr u32 kValue = LzJumpTiles::Memory::kValue;
  using Shared = simt::NoShared;
  LzJumpTiles tiles;

  SIMT_DEVICE void operator()(Shared&) const {
    constexpr u32 kPart = LzJumpTiles::kNbytes / kParts;
    const LzBatch& batch = tiles.batch;
    if (batch.is_done()) return;
    const u32 index = tiles.first + simt::cta_index() / kParts;
    const u32 w = find_stream<&LzStream::first_tile>(batch, index);
    const LzStream stream = batch.streams[w];
    const LzView view = view_of(stream);
    const u32 low =
        (index - stream.first_tile) * LzJumpTiles::kNbytes + simt::cta_index() % kParts * kPart;
    if (batch.records_of(w).n == 0 || stream.target_nbytes == 0 || low >= view.end) return;
    const u32 room = view.end - low, end = low + (room < kPart ? room : kPart);
    for (u32 p = low + 4 * simt::thread_index(); p < end; p += 4 * kThreads)
      chase(tiles.entries_of(stream), view, p);
  }

  SIMT_DEVICE static void chase(u32* entries, const LzView& view, u32 p) {
    const simt::Quad quad =
        simt::load_shared_cache(reinterpret_cast<const simt::Quad*>(entries + p));
    u32 entry[4] = {quad.x, quad.y, quad.z, quad.w};
    u32 open = 0;  // a bit each
    SIMT_UNROLL
    for (u32 k = 0; k < 4; ++k) open |= (entry[k] & kValue ? 0u : 1u) << k;
    const u32 hopped = open;
    while (open) {
      SIMT_UNROLL
      for (u32 k = 0; k < 4; ++k)
        if (open >> k & 1) entry[k] = simt::load_shared_cache(entries + entry[k]);
      SIMT_UNROLL
      for (u32 k = 0; k < 4; ++k)
        if (entry[k] & kValue) open &= ~(1u << k);
    }
    SIMT_UNROLL
    for (u32 k = 0; k < 4; ++k)  // spares those that follow these
      if (hopped >> k & 1) simt::store_shared_cache(entries + p + k, entry[k]);
    write(view, p, entry);
  }

  SIMT_DEVICE static void write(const LzView& view, u32 p, const u32* entry) {
    if (p >= view.begin && p + 4 <= view.end) {
      *reinterpret_cast<u32*>(view.base + p) =
          simt::permute_bytes(simt::permute_bytes(entry[0], entry[1], 0x40),
                              simt::permute_bytes(entry[2], entry[3], 0x40),
                              0x5410);
      return;
    }
    for (u32 k = 0; k < 4; ++k)
      if (p + k - view.begin < view.end - view.begin) view.base[p + k] = static_cast<u8>(entry[k]);
  }
};

}  // namespace headrace::SIMT_SPACE
