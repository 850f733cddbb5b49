// Matches of Deflate streams, tile by tile.
//
// A tile's bytes have entries of 16 bits: a value, or a position counted from 32 KiB before the
// tile, which no distance passes.

#include "kernels/deflate/format.h"
#include "kernels/deflate/stream.h"
#include "kernels/tuning.h"

namespace headrace::SIMT_SPACE::deflate {
namespace {

constexpr u32 kValue = 0xff00;  // | the byte
static_assert(kWindow + kDeflateTile <= kValue);

SIMT_DEVICE bool is_value(u32 entry) { return entry >= kValue; }

// Of four bytes in a row.
struct FourEntries {
  u32 entry[4];

  SIMT_DEVICE explicit FourEntries(simt::Pair packed)
      : entry{packed.x & 0xffff, packed.x >> 16, packed.y & 0xffff, packed.y >> 16} {}
  SIMT_DEVICE simt::Pair packed() const {
    return {entry[0] | entry[1] << 16, entry[2] | entry[3] << 16};
  }
  // When all are values.
  SIMT_DEVICE u32 bytes() const {
    return (entry[0] & 255) | (entry[1] & 255) << 8 | (entry[2] & 255) << 16 | entry[3] << 24;
  }
};

struct Tile {
  const DeflateStream& stream;
  u32 index;  // among those of all streams
  u32 start;  // in the target
  u32 nbytes;
  bool good;

  SIMT_DEVICE Tile(const DeflateWork& work, u32 tile)
      : stream(work.streams[work.stream_of_tile[tile]]),
        index(tile),
        start((tile - stream.first_tile) * kDeflateTile),
        good(work.results[work.stream_of_tile[tile]].fault == 0) {
    const u32 left = stream.target_nbytes - start;
    nbytes = left < kDeflateTile ? left : kDeflateTile;
  }
};

// `kShared`: other CTAs read it before the launch ends.
template <bool kShared, class T>
SIMT_DEVICE void store(T* p, T value) {
  if constexpr (kShared)
    simt::store_shared_cache(p, value);
  else
    *p = value;
}

// Up to 4 bytes of a tile's output.
template <bool kShared>
SIMT_DEVICE void store_bytes(const Tile& tile, u32 at, u32 word) {
  u8* to = tile.stream.target + tile.start + at;
  if (at + 4 <= tile.nbytes && (reinterpret_cast<std::uintptr_t>(to) & 3) == 0)
    store<kShared>(reinterpret_cast<u32*>(to), word);
  else
    for (u32 k = 0; k < 4 && at + k < tile.nbytes; ++k)
      store<kShared>(to + k, static_cast<u8>(word >> 8 * k));
}

// Of entries whose positions are before the tile, all of which is done; by other CTAs if `kShared`.
template <bool kShared>
SIMT_DEVICE u32 bytes_of(const Tile& tile, FourEntries four) {
  SIMT_UNROLL
  for (u32& entry : four.entry) {
    if (is_value(entry)) continue;
    const u8* const from = tile.stream.target + tile.start + entry - kWindow;
    entry = kShared ? simt::load_shared_cache(from) : *from;
  }
  return four.bytes();
}

// Longer matches are for whole warps.
constexpr u32 kShortMatch = 24;
struct TileMemory {
  alignas(16) u16 entries[kDeflateTile];
  u16 long_matches[kDeflateTile / kShortMatch + 1];
  u32 long_count;
};

// Makes the entries of a tile, as far as the tile itself tells, by that many threads.
template <unsigned kThreads>
class TileEntries {
 public:
  SIMT_DEVICE TileEntries(TileMemory& shared, const DeflateWork& work, const Tile& tile)
      : s(shared), work_(work), tile_(tile), bytes_(tile.stream.target + tile.start) {}

  SIMT_DEVICE void make() const {
    load();
    simt::sync_cta();
    expand_short();
    simt::sync_cta();
    expand_long();
    simt::sync_cta();
  }

  // Four entries, `at` a multiple of 4: values, or positions before the tile. They are left for
  // those that follow these.
  SIMT_DEVICE FourEntries resolve(u32 at) const {
    auto* const place = reinterpret_cast<simt::Pair*>(s.entries + at);
    FourEntries four(*place);
    bool hops = false;
    SIMT_UNROLL
    for (u32 k = 0; k < 4; ++k) {
      u32& entry = four.entry[k];
      if (is_value(entry) || entry < kWindow) continue;
      hops = true;
      do entry = simt::load_relaxed(s.entries + (entry - kWindow));
      while (!is_value(entry) && entry >= kWindow);
    }
    if (hops) simt::store_relaxed(place, four.packed());
    return four;
  }

 private:
  SIMT_DEVICE void load() const {
    if (simt::thread_index() == 0) s.long_count = 0;
    const bool aligned = (reinterpret_cast<std::uintptr_t>(bytes_) & 3) == 0;
    for (u32 i = 4 * simt::thread_index(); i < tile_.nbytes; i += 4 * kThreads) {
      u32 word = 0;
      if (aligned && i + 4 <= tile_.nbytes)
        word = *reinterpret_cast<const u32*>(bytes_ + i);
      else
        for (u32 k = 0; k < 4 && i + k < tile_.nbytes; ++k) word |= u32{bytes_[i + k]} << 8 * k;
      constexpr u32 kValues = kValue | kValue << 16;
      *reinterpret_cast<simt::Pair*>(s.entries + i) = {
          kValues | (word & 255) | (word & 0xff00) << 8,
          kValues | (word >> 16 & 255) | (word >> 24) << 16};
    }
  }

  // The match that waits at `at`, as far as it lies in the tile.
  SIMT_DEVICE Match match_at(u32 at) const {
    u32 packed = 0;
    for (u32 i = 0; i < 3; ++i)
      packed |= (at + i < tile_.nbytes ? s.entries[at + i] & 255u
                                       : u32{simt::load_shared_cache(bytes_ + at + i)})
                << 8 * i;
    Match match = unpack_match(packed);
    const u32 left = tile_.nbytes - at;
    if (match.nbytes > left) match.nbytes = left;
    return match;
  }

  SIMT_DEVICE void expand_short() const {
    const u32* starts = work_.match_starts + u64{tile_.index} * (kDeflateTile / 32);
    constexpr u32 kSpan = kDeflateTile / kThreads < 32 ? kDeflateTile / kThreads : 32;
    for (u32 begin = kSpan * simt::thread_index(); begin < tile_.nbytes;
         begin += kSpan * kThreads) {
      u32 bits = starts[begin / 32] >> begin % 32;
      if (kSpan < 32) bits &= (1u << kSpan % 32) - 1;
      for (; bits; bits &= bits - 1) {
        const u32 at = begin + simt::trailing_zeros(bits);
        const Match match = match_at(at);
        if (match.nbytes > kShortMatch) {
          s.long_matches[simt::atomic_add(&s.long_count, 1u)] = static_cast<u16>(at);
          continue;
        }
        const u32 source = kWindow + at - match.distance;
        for (u32 i = 0, k = 0; i < match.nbytes; ++i) {
          s.entries[at + i] = static_cast<u16>(source + k);
          k = k + 1 == match.distance ? 0 : k + 1;
        }
      }
    }
  }

  // For one warp.
  SIMT_DEVICE void expand(u32 at, Match match) const {
    const u32 source = kWindow + at - match.distance;
    for (u32 i = simt::lane_index(); i < match.nbytes; i += simt::kWarp)
      s.entries[at + i] = static_cast<u16>(source + (i < match.distance ? i : i % match.distance));
  }

  SIMT_DEVICE void expand_long() const {
    const unsigned warp = simt::warp_index();
    if (warp == 0) {
      const MatchRest rest = work_.rests[tile_.index];
      expand(0, {rest.nbytes, rest.distance});
    }
    for (u32 i = warp; i < s.long_count; i += kThreads / simt::kWarp) {
      const u32 at = s.long_matches[i];
      const Match match = match_at(at);
      simt::sync_warp();
      expand(at, match);
    }
  }

  TileMemory& s;
  const DeflateWork& work_;
  const Tile& tile_;
  u8* bytes_;
};

// A CTA a stream: what is before a tile is done, and read from the target.
struct ExpandInOrder {
  static constexpr unsigned kThreads = 512;
  static constexpr unsigned kMinCtas = 2;
  using Shared = TileMemory;

  DeflateWork work;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const DeflateStream stream = work.streams[simt::cta_index()];
    const u32 tiles = tile_count(stream.target_nbytes);
    for (u32 i = 0; i < tiles; ++i) {
      const Tile tile(work, stream.first_tile + i);
      if (!tile.good) return;
      const TileEntries<kThreads> entries(shared, work, tile);
      entries.make();
      for (u32 at = 4 * simt::thread_index(); at < tile.nbytes; at += 4 * kThreads)
        store_bytes<false>(tile, at, bytes_of<false>(tile, entries.resolve(at)));
      simt::sync_cta();
    }
  }
};

// The same of few streams. CTAs take tiles, of each stream the first, then of each the second. Who
// has one makes its entries while another CTA is at the tile before, and waits for what that one
// writes before it reads it: taken earlier, that tile is worked on or done.
struct ExpandInTurns {
  static constexpr unsigned kThreads = 1024;
  static constexpr unsigned kMinCtas = 1;
  static constexpr u32 kFours = kDeflateTile / (4 * kThreads);  // of a thread
  struct Shared : TileMemory {
    u32 turn;
  };

  DeflateWork work;
  u32 turns;
  u32* next;  // turn
  u32* done;  // tiles of each stream

  SIMT_DEVICE void operator()(Shared& shared) const {
    u32 turn = 0;
    while (next_item(next, turns, shared.turn, turn)) {
      const u32 stream = turn % work.count, index = turn / work.count;
      if (index >= tile_count(work.streams[stream].target_nbytes)) continue;
      const Tile tile(work, work.streams[stream].first_tile + index);
      if (tile.good) expand(shared, tile, done + stream, index);
    }
  }

 private:
  SIMT_DEVICE void expand(Shared& shared, const Tile& tile, u32* tiles, u32 index) const {
    const TileEntries<kThreads> entries(shared, work, tile);
    entries.make();
    simt::Pair packed[kFours];
    u32 words[kFours];
    SIMT_UNROLL
    for (u32 i = 0; i < kFours; ++i)
      if (place(i) < tile.nbytes) packed[i] = entries.resolve(place(i)).packed();
    if (simt::thread_index() == 0) simt::wait_for(tiles, index);
    simt::sync_cta();
    SIMT_UNROLL
    for (u32 i = 0; i < kFours; ++i)
      if (place(i) < tile.nbytes) words[i] = bytes_of<true>(tile, FourEntries(packed[i]));
    SIMT_UNROLL
    for (u32 i = 0; i < kFours; ++i)
      if (place(i) < tile.nbytes) store_bytes<true>(tile, place(i), words[i]);
    simt::sync_cta();
    if (simt::thread_index() == 0) simt::signal(tiles, index + 1);
  }
  SIMT_DEVICE static u32 place(u32 i) { return 4 * (simt::thread_index() + i * kThreads); }
};

// A CTA a tile, all tiles at once.
struct ExpandTile {
  static constexpr unsigned kThreads = 512;
  static constexpr unsigned kMinCtas = 2;
  using Shared = TileMemory;

  DeflateWork work;
  u32 first_tile;
  simt::Pair* entries;  // of four bytes each

  SIMT_DEVICE void operator()(Shared& shared) const {
    const Tile tile(work, first_tile + simt::cta_index());
    if (!tile.good) return;
    const TileEntries<kThreads> own(shared, work, tile);
    own.make();
    simt::Pair* to = entries + u64{simt::cta_index()} * (kDeflateTile / 4);
    for (u32 at = 4 * simt::thread_index(); at < tile.nbytes; at += 4 * kThreads)
      to[at / 4] = own.resolve(at).packed();
  }
};

// Follows each entry to its value.
struct ChaseBytes {
  static constexpr unsigned kThreads = 256;
  static constexpr u32 kBytes = 4 * kThreads;
  static constexpr u32 kCtas = kDeflateTile / kBytes;  // a tile
  using Shared = simt::NoShared;

  DeflateWork work;
  u32 first_tile;
  simt::Pair* entries;

  SIMT_DEVICE void operator()(Shared&) const {
    const Tile tile(work, first_tile + simt::cta_index() / kCtas);
    const u32 at = simt::cta_index() % kCtas * kBytes + 4 * simt::thread_index();
    if (!tile.good || at >= tile.nbytes) return;

    // The tiles of the target that have entries, and where these begin, were it all of them.
    const u32 first = tile.stream.first_tile > first_tile ? tile.stream.first_tile : first_tile;
    const u32 done = (first - tile.stream.first_tile) * kDeflateTile;
    const u64 skip = u64{first - first_tile} * kDeflateTile - done;

    const u32 position = tile.start + at;
    u32* const words = reinterpret_cast<u32*>(entries);
    simt::Pair* const own = entries + (skip + position) / 4;
    FourEntries four(*own);
    u32 from[4];  // starts of the tiles that they belong to
    for (u32 k = 0; k < 4; ++k) {
      from[k] = tile.start;
      if (at + k >= tile.nbytes) four.entry[k] = kValue;
    }
    bool open = false;
    for (u32 k = 0; k < 4; ++k) open |= !is_value(four.entry[k]);
    const bool hopped = open;
    while (open) {
      open = false;
      SIMT_UNROLL
      for (u32 k = 0; k < 4; ++k) {
        if (is_value(four.entry[k])) continue;
        const u32 source = from[k] + four.entry[k] - kWindow;
        if (source < done) {
          four.entry[k] = kValue | tile.stream.target[source];
        } else {
          const u64 i = skip + source;
          four.entry[k] = simt::load_shared_cache(words + i / 2) >> 16 * (i % 2) & 0xffff;
          from[k] = source / kDeflateTile * kDeflateTile;
          open |= !is_value(four.entry[k]);
        }
      }
    }
    if (hopped) {  // spares those that follow these
      const simt::Pair packed = four.packed();
      simt::store_shared_cache(&own->x, packed.x);
      simt::store_shared_cache(&own->y, packed.y);
    }
    store_bytes<false>(tile, at, four.bytes());
  }
};

}  // namespace

void execute_in_order(Queue& queue, const DeflateWork& work, u32 most_tiles) {
  const u64 share = tuning_of(queue).deflate.turn_streams;
  if (work.count >= share) {
    simt::launch(queue, work.count, ExpandInOrder{work});
    return;
  }
  const Scratch<u32> counts(queue, work.count + 1);
  queue.fill(counts.data(), 0, (work.count + 1) * sizeof(u32));
  simt::launch(
      queue, share, ExpandInTurns{work, most_tiles * work.count, counts.data(), counts.data() + 1});
}

void execute_tiles(Queue& queue, const DeflateWork& work, u32 first, u32 end) {
  const Scratch<simt::Pair> entries(queue, u64{end - first} * (kDeflateTile / 4));
  simt::launch(queue, end - first, ExpandTile{work, first, entries.data()});
  simt::launch(
      queue, u64{end - first} * ChaseBytes::kCtas, ChaseBytes{work, first, entries.data()});
}

}  // namespace headrace::SIMT_SPACE::deflate
