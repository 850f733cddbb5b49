#pragma once

// From the records of LZ streams to their bytes. A tile of output is filled in shared memory, one
// entry a byte: its value, or where to copy it from. Two ways from there:
//
// order: one block makes a stream, tile after tile. Copies from earlier tiles are values.
// jump:  all tiles of all streams at once. Entries that point before their tile go to device
//        memory (4 bytes a byte), and a second kernel follows each to its value: for few streams.
//
// Positions are counted from the target rounded down to 4, so that words of it are aligned.

#include "kernels/fault.h"
#include "kernels/lz_stream.h"

namespace headrace::SIMT_SPACE {

inline constexpr u32 kLzValue = 0x80000000;  // an entry that is a value, not a position

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

// What a whole warp puts into a tile.
struct LzPiece {
  u32 entry, nbytes;
  u32 from;      // literals: their position; a match: the position of its own first byte
  u32 distance;  // 0: literals
};

template <u32 nbytes>
struct LzTile {
  static constexpr u32 kNbytes = nbytes;
  alignas(16) u32 entries[nbytes];
  LzPiece pieces[nbytes / 16];
  u32 n_pieces;
  u32 next;  // record that the next tile begins with
};

// Parts longer than kLzAlone are a warp's, in pieces.
inline constexpr u32 kLzAlone = 24, kLzPiece = 512;
static_assert(kLzAlone + 1 > 16, "each piece but those of kLzPiece takes more than 16 entries");

// Fills the tile of positions [low, high) from the records that begin with the one that gives
// `low`. Entries are values or positions, of jump in the stream and else in the tile.
template <class Dialect, bool jump, class Tile, u32 threads>
struct LzFill {
  Tile& tile;
  LzView view;
  u32 low, high;
  u32 known;  // the target before it is written

  SIMT_DEVICE u32 entry_of(u32 position) const {
    if (position < known) return kLzValue | view.base[position];
    return jump ? position : position - low;
  }

  SIMT_DEVICE void put_literals(u32 at, u32 n, u32 from) const {
    for (u32 j = 0; j < n; j += 8) {
      const u64 bytes = load_8(view.source + from + j);
      SIMT_UNROLL
      for (u32 k = 0; k < 8; ++k)
        if (j + k < n) tile.entries[at - low + j + k] = kLzValue | static_cast<u8>(bytes >> 8 * k);
    }
  }

  SIMT_DEVICE void put_match(u32 at, u32 n, u32 from) const {
    for (u32 j = 0; j < n; j += 8) {
      const u32 q = from + j;
      // The words that hold them are wholly behind us and within the target.
      const bool old = q >= view.begin + 4 && q + 12 <= known;
      const u64 bytes = old ? load_8<false>(view.base + q) : 0;
      SIMT_UNROLL
      for (u32 k = 0; k < 8; ++k)
        if (j + k < n)
          tile.entries[at - low + j + k] =
              old ? kLzValue | static_cast<u8>(bytes >> 8 * k) : entry_of(q + k);
    }
  }

  // A match repeats the bytes before it, so byte i of it is one of those and never its own.
  SIMT_DEVICE u32 repeated(u32 match, u32 distance, u32 position) const {
    const u32 i = position - match;
    return match - distance + (i < distance ? i : i % distance);
  }

  SIMT_DEVICE void put_later(u32 at, u32 n, u32 from, u32 distance) const {
    for (u32 done = 0; done < n; done += kLzPiece)
      tile.pieces[simt::atomic_add(&tile.n_pieces, 1u)] = {
          at + done - low,
          n - done < kLzPiece ? n - done : kLzPiece,
          distance ? from : from + done,
          distance};
  }

  // The part of one token's output that lies in the tile. False: the token breaks the format.
  SIMT_DEVICE bool put(LzRecord record, u32 end) const {
    const u32 start = record.start + view.begin;
    const LzParts parts = Dialect::parts(view.source, record.token, view.source_nbytes);
    const u32 match = start + parts.literal_nbytes;
    u32 a = start > low ? start : low, b = match < high ? match : high;
    if (a < b) {
      const u32 from = parts.literals + (a - start);
      if (b - a > kLzAlone)
        put_later(a, b - a, from, 0);
      else
        put_literals(a, b - a, from);
    }
    a = match > low ? match : low;
    b = end < high ? end : high;
    if (match == end) return true;
    const bool good = parts.distance != 0 && parts.distance <= match - view.begin &&
                      Dialect::allows(match - view.begin, end - match, view.end - view.begin);
    if (a >= b) return good;
    if (!good) {
      for (; a < b; ++a) tile.entries[a - low] = kLzValue;
    } else if (b - a > kLzAlone) {
      put_later(a, b - a, match, parts.distance);
    } else if (parts.distance < end - match) {
      for (; a < b; ++a) tile.entries[a - low] = entry_of(repeated(match, parts.distance, a));
    } else {
      put_match(a, b - a, a - parts.distance);
    }
    return good;
  }

  SIMT_DEVICE void put_piece(const LzPiece& piece) const {
    const u32 lane = simt::lane_index();
    u32* const to = tile.entries + piece.entry;
    if (piece.distance) {
      for (u32 i = lane; i < piece.nbytes; i += simt::kWarp)
        to[i] = entry_of(repeated(piece.from, piece.distance, low + piece.entry + i));
      return;
    }
    const u8* const from = view.source + piece.from;
    constexpr u32 kLoads = 8;  // in flight together
    for (u32 i = lane; i < piece.nbytes; i += kLoads * simt::kWarp) {
      u32 bytes[kLoads] = {};
      SIMT_UNROLL
      for (u32 k = 0; k < kLoads; ++k)
        if (i + k * simt::kWarp < piece.nbytes)
          bytes[k] = simt::load_constant(from + i + k * simt::kWarp);
      SIMT_UNROLL
      for (u32 k = 0; k < kLoads; ++k)
        if (i + k * simt::kWarp < piece.nbytes) to[i + k * simt::kWarp] = kLzValue | bytes[k];
    }
  }

  // By the whole block. False on threads that met a token that breaks the format.
  SIMT_DEVICE bool operator()(const LzRecord* records, u32 n, u32 first) const {
    const u32 thread = simt::thread_index();
    if (thread == 0) {
      tile.n_pieces = 0;
      tile.next = first;
    }
    simt::sync_block();
    bool good = true;
    u32 last = first;
    for (u32 i = first + thread; i < n; i += threads) {
      const LzRecord record = records[i];
      const u32 start = record.start + view.begin;
      if (start > high) break;
      last = i;
      if (start == high) break;
      good &= put(record, records[i + 1].start + view.begin);
    }
    if (last > first) simt::atomic_max(&tile.next, last);
    simt::sync_block();
    for (u32 i = simt::warp_index(); i < tile.n_pieces; i += threads / simt::kWarp)
      put_piece(tile.pieces[i]);
    simt::sync_block();
    return good;
  }
};

// One block a stream.
template <class Dialect, u32 tile_nbytes, u32 threads>
struct LzOrder {
  static constexpr unsigned kThreads = threads;
  static constexpr unsigned kMinBlocks = tile_nbytes > 16384 ? 1 : tile_nbytes > 4096 ? 2 : 10;
  using Shared = LzTile<tile_nbytes>;
  LzBatch batch;

  SIMT_DEVICE void operator()(Shared& tile) const {
    const LzStream stream = batch.streams[simt::block_index()];
    const LzRecord* records = batch.records + stream.first_record;
    const u32 n = batch.n_records[simt::block_index()];
    if (n == 0) return;
    const LzView view = view_of(stream);
    bool good = true;
    u32 first = 0;
    for (u32 tile_low = 0; tile_low < view.end; tile_low += tile_nbytes) {
      const u32 low = tile_low ? tile_low : view.begin;
      const u32 room = view.end - tile_low;
      const u32 high = tile_low + (room < tile_nbytes ? room : tile_nbytes);
      const LzFill<Dialect, false, Shared, threads> fill{tile, view, tile_low, high, tile_low};
      good &= fill(records, n, first);
      first = tile.next;
      for (u32 p = 4 * simt::thread_index(); p < high - tile_low; p += 4 * threads)
        write(tile, view, tile_low + p, p, low, high);
      simt::sync_block();
    }
    if (!good) raise(batch.faults, stream.chunk, Fault::malformed);
  }

  // The word at `position`, as far as it lies in [low, high).
  SIMT_DEVICE static void write(
      Shared& tile, const LzView& view, u32 position, u32 p, u32 low, u32 high) {
    u32* const entries = tile.entries + p;
    if (position >= low && position + 4 <= high) {
      const simt::Quad quad = *reinterpret_cast<const simt::Quad*>(entries);
      const u32 a = value(tile, quad.x, entries), b = value(tile, quad.y, entries + 1),
                c = value(tile, quad.z, entries + 2), d = value(tile, quad.w, entries + 3);
      *reinterpret_cast<u32*>(view.base + position) = simt::permute_bytes(
          simt::permute_bytes(a, b, 0x40), simt::permute_bytes(c, d, 0x40), 0x5410);
      return;
    }
    for (u32 k = 0; k < 4; ++k)
      if (position + k >= low && position + k < high)
        view.base[position + k] = static_cast<u8>(value(tile, entries[k], entries + k));
  }

  // Follows an entry to its value, and leaves it at `place` for those who come later.
  SIMT_DEVICE static u32 value(const Shared& tile, u32 entry, u32* place) {
    if (entry & kLzValue) return entry;
    do entry = tile.entries[entry];
    while (!(entry & kLzValue));
    *place = entry;
    return entry;
  }
};

// Tiles of jump are numbered over all streams. Those from `first` on have their entries in that
// order, those before are written.
struct LzJumpTiles {
  static constexpr u32 kNbytes = 16384, kThreads = 512;
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

// Every tile, resolved inside itself.
template <class Dialect>
struct LzExpand {
  static constexpr unsigned kThreads = LzJumpTiles::kThreads;
  using Shared = LzTile<LzJumpTiles::kNbytes>;
  LzJumpTiles tiles;

  SIMT_DEVICE void operator()(Shared& tile) const {
    const LzBatch& batch = tiles.batch;
    const u32 index = tiles.first + simt::block_index();
    const u32 w = find_stream<&LzStream::first_tile>(batch, index), n = batch.n_records[w];
    const LzStream stream = batch.streams[w];
    const LzView view = view_of(stream);
    const u32 low = (index - stream.first_tile) * Shared::kNbytes;
    if (n == 0 || low >= view.end) return;
    const u32 room = view.end - low, high = low + (room < Shared::kNbytes ? room : Shared::kNbytes);
    const LzRecord* records = batch.records + stream.first_record;
    const u32 first = find_record(records, n, low > view.begin ? low - view.begin : 0);
    const LzFill<Dialect, true, Shared, kThreads> fill{
        tile, view, low, high, tiles.written(stream)};
    if (!fill(records, n, first)) raise(batch.faults, stream.chunk, Fault::malformed);
    u32* out = tiles.entries_of(stream) + low;
    for (u32 p = (low ? 0 : view.begin) + simt::thread_index(); p < high - low; p += kThreads) {
      u32 entry = tile.entries[p];
      while (!(entry & kLzValue) && entry >= low) entry = tile.entries[entry - low];
      tile.entries[p] = entry;
      out[p] = entry;
    }
  }

  // The last record that starts at or before `position`. By a whole warp.
  SIMT_DEVICE static u32 find_record(const LzRecord* records, u32 n, u32 position) {
    u32 low = 0;
    while (n > 1) {
      const u32 step = (n + simt::kWarp - 1) / simt::kWarp, at = simt::lane_index() * step;
      const u32 found = simt::ballot(at < n && records[low + at].start <= position);
      const u32 back = (31 - simt::leading_zeros(found)) * step;
      low += back;
      n = n - back < step ? n - back : step;
    }
    return low;
  }
};

// Every byte, followed to its value.
struct LzChase {
  static constexpr unsigned kThreads = LzJumpTiles::kThreads;
  static constexpr u32 kAtOnce = 4;
  using Shared = simt::NoShared;
  LzJumpTiles tiles;

  SIMT_DEVICE void operator()(Shared&) const {
    const LzBatch& batch = tiles.batch;
    const u32 index = tiles.first + simt::block_index();
    const u32 w = find_stream<&LzStream::first_tile>(batch, index);
    const LzStream stream = batch.streams[w];
    const LzView view = view_of(stream);
    const u32 low = (index - stream.first_tile) * LzJumpTiles::kNbytes;
    if (batch.n_records[w] == 0 || low >= view.end) return;
    const u32 room = view.end - low;
    const u32 high = low + (room < LzJumpTiles::kNbytes ? room : LzJumpTiles::kNbytes);
    u32* entries = tiles.entries_of(stream);
    const u32 begin = low ? low : view.begin;
    for (u32 p = low + simt::warp_index() * kAtOnce * simt::kWarp + simt::lane_index(); p < high;
         p += kAtOnce * kThreads)
      chase(entries, view.base, p, begin, high);
  }

  SIMT_DEVICE static void chase(u32* entries, u8* base, u32 p, u32 begin, u32 end) {
    u32 entry[kAtOnce], values = kLzValue;
    bool hopped[kAtOnce];
    SIMT_UNROLL
    for (u32 k = 0; k < kAtOnce; ++k) {
      const u32 at = p + k * simt::kWarp;
      entry[k] = at >= begin && at < end ? simt::load_shared_cache(entries + at) : kLzValue;
      hopped[k] = !(entry[k] & kLzValue);
      values &= entry[k];
    }
    while (!values) {
      values = kLzValue;
      SIMT_UNROLL
      for (u32 k = 0; k < kAtOnce; ++k) {
        if (!(entry[k] & kLzValue)) entry[k] = simt::load_shared_cache(entries + entry[k]);
        values &= entry[k];
      }
    }
    SIMT_UNROLL
    for (u32 k = 0; k < kAtOnce; ++k) {
      const u32 at = p + k * simt::kWarp;
      if (hopped[k]) simt::store_shared_cache(entries + at, entry[k]);
      if (at >= begin && at < end) base[at] = static_cast<u8>(entry[k]);
    }
  }
};

}  // namespace headrace::SIMT_SPACE
