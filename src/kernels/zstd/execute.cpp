#include "kernels/zstd/execute.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/tuning.h"
#include "kernels/zstd/stages.h"
#include "simt/recycling_vector.h"

namespace headrace::SIMT_SPACE::zstd {
namespace {

// One CTA a source goes through its tiles in order, so that what lies before a tile can be
// read from the target.
template <u32 kTile, unsigned kThreads_, unsigned kMinCtas_>
struct ExecuteInOrder {
  static constexpr unsigned kThreads = kThreads_, kMinCtas = kMinCtas_;
  static constexpr bool kOnlyWhereItFits = kTile > 16 * 1024;
  using Shared = TileMemory<kTile>;
  ExecuteWork work;
  const u32* list;  // of sources

  SIMT_DEVICE void operator()(Shared& tile) const {
    const Source& source = work.sources[list[simt::cta_index()]];
    if (work.faults[source.chunk] != 0) return;
    for (u32 index = source.first_block; index < source.end_block; ++index) {
      const BlockView block = view_block(work, index);
      const i32 nbytes = static_cast<i32>(block.nbytes);
      const bool sparse = block.record_count < block.nbytes / kSparse;
      u32 record = 0;
      for (i32 begin = 0; begin < nbytes;) {
        const LongRun run =
            sparse ? find_long_run(block, record, begin) : LongRun{nbytes, nbytes, 0};
        if (run.begin == begin) {
          copy_long_run<kThreads>(block, run, record);
          simt::sync_cta();
          begin = run.end;
          if (run.offset) ++record;
          continue;
        }
        // Words of the target are aligned.
        const i32 origin = begin - static_cast<i32>(misalignment(block.target + begin, 4));
        const i32 room = origin + static_cast<i32>(kTile);
        const TileBounds bounds{origin, begin, run.begin < room ? run.begin : room, begin, -origin};
        TileFiller<kThreads, Shared>(tile, block, bounds).fill(record);
        record = tile.next_record;
        for (i32 at = origin + 4 * static_cast<i32>(simt::thread_index()); at < bounds.end;
             at += 4 * static_cast<i32>(kThreads))
          write_word(tile, block.target, bounds, at);
        simt::sync_cta();
        begin = bounds.end;
      }
    }
  }

 private:
  SIMT_DEVICE static void write_word(Shared& tile, u8* target, const TileBounds& bounds, i32 at) {
    u32* const entries = tile.entries + (at - bounds.origin);
    if (at >= bounds.begin && at + 4 <= bounds.end) {
      const simt::Quad quad = values(tile, *reinterpret_cast<const simt::Quad*>(entries), entries);
      *reinterpret_cast<u32*>(target + at) =
          simt::permute_bytes(simt::permute_bytes(quad.x, quad.y, 0x40),
                              simt::permute_bytes(quad.z, quad.w, 0x40),
                              0x5410);
      return;
    }
    for (i32 k = 0; k < 4; ++k) {
      if (at + k < bounds.begin || at + k >= bounds.end) continue;
      u32 entry = entries[k];
      while (!(entry & kValue)) entry = simt::load_relaxed(tile.entries + entry);
      target[at + k] = static_cast<u8>(entry);
    }
  }

  // Follows four entries at once to their values, and leaves these for those who come later.
  SIMT_DEVICE static simt::Quad values(const Shared& tile, simt::Quad quad, u32* place) {
    if (quad.x & quad.y & quad.z & quad.w & kValue) return quad;
    do {
      if (!(quad.x & kValue)) quad.x = simt::load_relaxed(tile.entries + quad.x);
      if (!(quad.y & kValue)) quad.y = simt::load_relaxed(tile.entries + quad.y);
      if (!(quad.z & kValue)) quad.z = simt::load_relaxed(tile.entries + quad.z);
      if (!(quad.w & kValue)) quad.w = simt::load_relaxed(tile.entries + quad.w);
    } while (!(quad.x & quad.y & quad.z & quad.w & kValue));
    simt::store_relaxed(reinterpret_cast<simt::Quad*>(place), quad);
    return quad;
  }
};

// Blocks of one source whose tiles are all worked on at once: what lies before them is done.
struct Piece {
  u32 source;
  u32 first_block, end_block;
  u32 tiles_of_block;  // as many as one can have
  u32 first_tile;      // of all pieces of the launch
  u32 first_chase;     // CTA
  u64 entries;         // its first one
};

struct Pieces {
  const Piece* pieces;
  u32 count;
  u32* entries;

  // The piece that a CTA works on. By whole warps.
  template <u32 Piece::*first>
  SIMT_DEVICE const Piece& find(u32 block) const {
    return pieces[simt::last_at_or_before(
        count, block, [this](u32 i) { return pieces[i].*first; })];
  }
};

// Every tile by itself: entries are values, or positions in the piece before the tile.
struct ExpandTiles {
  static constexpr u32 kTile = 16 * 1024;
  static constexpr unsigned kThreads = 512;
  static constexpr bool kOnlyWhereItFits = true;  // Tuning has no jumps elsewhere
  using Shared = TileMemory<kTile>;
  ExecuteWork work;
  Pieces pieces;

  SIMT_DEVICE void operator()(Shared& tile) const {
    const Piece& piece = pieces.find<&Piece::first_tile>(simt::cta_index());
    if (work.faults[work.sources[piece.source].chunk] != 0) return;
    const u32 at = simt::cta_index() - piece.first_tile;
    const BlockView block = view_block(work, piece.first_block + at / piece.tiles_of_block);
    const u32 origin = at % piece.tiles_of_block * kTile;
    if (origin >= block.nbytes) return;
    const u32 before = block.start - work.placed[piece.first_block].start;  // in the piece
    const TileBounds bounds{
        static_cast<i32>(origin),
        static_cast<i32>(origin),
        static_cast<i32>(block.nbytes - origin < kTile ? block.nbytes : origin + kTile),
        -static_cast<i32>(before),
        static_cast<i32>(before)};
    const u32 record =
        simt::last_at_or_before(block.record_count, static_cast<i32>(origin), [&](u32 i) {
          return record_start(block.records, i);
        });
    TileFiller<kThreads, Shared>(tile, block, bounds).fill(record);

    const u32 first = before + origin, nbytes = static_cast<u32>(bounds.end - bounds.begin);
    u32* const to = pieces.entries + piece.entries + first;
    for (u32 i = simt::thread_index(); i < nbytes; i += kThreads) {
      u32& place = tile.entries[i];
      u32 entry = place;
      if (!(entry & kValue) && entry >= first) {
        do entry = simt::load_relaxed(tile.entries + (entry - first));
        while (!(entry & kValue) && entry >= first);
        simt::store_relaxed(&place, entry);
      }
      to[i] = entry;
    }
  }
};

// Follows each byte's entries to its value. Earlier bytes are mostly done by then and every result
// is written back, so the ways are short; they end because entries point to earlier bytes.
struct ChaseEntries {
  static constexpr unsigned kThreads = 256;
  static constexpr u32 kOfLane = 4, kOfCta = kThreads * kOfLane;
  using Shared = simt::NoShared;
  ExecuteWork work;
  Pieces pieces;

  SIMT_DEVICE void operator()(Shared&) const {
    const Piece& piece = pieces.find<&Piece::first_chase>(simt::cta_index());
    if (work.faults[work.sources[piece.source].chunk] != 0) return;
    const BlockView first = view_block(work, piece.first_block);
    const BlockView last = view_block(work, piece.end_block - 1);
    const u32 nbytes = last.start + last.nbytes - first.start;
    u32* const entries = pieces.entries + piece.entries;
    const u32 at = (simt::cta_index() - piece.first_chase) * kOfCta +
                   simt::warp_index() * simt::kWarp * kOfLane + simt::lane_index();
    u32 entry[kOfLane];
    bool hops[kOfLane];
    SIMT_UNROLL
    for (u32 k = 0; k < kOfLane; ++k) {
      const u32 i = at + k * simt::kWarp;
      entry[k] = i < nbytes ? simt::load_shared_cache(entries + i) : kValue;
      hops[k] = !(entry[k] & kValue);
    }
    while (!(entry[0] & entry[1] & entry[2] & entry[3] & kValue)) {
      SIMT_UNROLL
      for (u32 k = 0; k < kOfLane; ++k)
        if (!(entry[k] & kValue)) entry[k] = simt::load_shared_cache(entries + entry[k]);
    }
    SIMT_UNROLL
    for (u32 k = 0; k < kOfLane; ++k) {
      const u32 i = at + k * simt::kWarp;
      if (i >= nbytes) continue;
      first.target[i] = static_cast<u8>(entry[k]);
      if (hops[k]) simt::store_shared_cache(entries + i, entry[k]);
    }
  }
};

// Pieces of one launch. Entries take 4 bytes a decoded byte.
struct Wave {
  std::vector<Piece> pieces;
  u64 entries = 0;
  u32 tiles = 0, chases = 0;
};
constexpr u32 kPieceBlocks = 128;
constexpr u64 kWaveEntries = u64{kPieceBlocks} * kMaxBlock;

void run_wave(Queue& queue, const ExecuteWork& work, const Wave& wave) {
  const auto pieces = Scratch<Piece>::of(queue, wave.pieces.data(), wave.pieces.size());
  const Scratch<u32> entries(queue, wave.entries);
  const Pieces arguments{pieces.data(), static_cast<u32>(wave.pieces.size()), entries.data()};
  simt::launch(queue, wave.tiles, ExpandTiles{work, arguments});
  simt::launch(queue, wave.chases, ChaseEntries{work, arguments});
}

void execute_by_jumps(Queue& queue,
                      const Plan& plan,
                      const ExecuteWork& work,
                      std::span<const u32> list) {
  Wave wave;
  const auto flush = [&] {
    if (!wave.pieces.empty()) run_wave(queue, work, wave);
    wave = {};
  };
  for (const u32 index : list) {
    const Source& source = plan.sources[index];
    const u32 tiles_of_block =
        (std::min(kMaxBlock, source.target_nbytes) + ExpandTiles::kTile - 1) / ExpandTiles::kTile;
    for (u32 first = source.first_block; first < source.end_block; first += kPieceBlocks) {
      const u32 end = std::min(first + kPieceBlocks, source.end_block);
      const u64 entries = std::min<u64>(u64{end - first} * kMaxBlock, source.target_nbytes);
      // The next piece of a source reads what the one before has written.
      if (first != source.first_block || wave.entries + entries > kWaveEntries) flush();
      wave.pieces.push_back(
          {index, first, end, tiles_of_block, wave.tiles, wave.chases, wave.entries});
      wave.entries += entries;
      wave.tiles += (end - first) * tiles_of_block;
      wave.chases += static_cast<u32>((entries + ChaseEntries::kOfCta - 1) / ChaseEntries::kOfCta);
    }
  }
  flush();
}

void execute_in_order(Queue& queue,
                      const Plan& plan,
                      const ExecuteWork& work,
                      std::span<const u32> list) {
  if (list.empty()) return;
  u32 largest = 0;
  for (const u32 index : list) largest = std::max(largest, plan.sources[index].target_nbytes);
  const auto sources = Scratch<u32>::of(queue, list.data(), list.size());
  // Large tiles need few steps, small ones let a multiprocessor work on several sources.
  using OfFew = ExecuteInOrder<32 * 1024, 1024, 1>;
  if (largest <= tuning_of(queue).zstd.small_source)
    simt::launch(queue, list.size(), ExecuteInOrder<4 * 1024, 256, 8>{work, sources.data()});
  else if (list.size() > queue.processors() || !fits<OfFew>(queue))
    simt::launch(queue, list.size(), ExecuteInOrder<8 * 1024, 512, 4>{work, sources.data()});
  else
    simt::launch(queue, list.size(), OfFew{work, sources.data()});
}

}  // namespace

void execute(Queue& queue, const Plan& plan, const Stages& stages, const u32* faults) {
  const ExecuteWork work{plan.device_sources,
                         plan.blocks,
                         stages.placed.data(),
                         stages.records.data(),
                         stages.literals.data(),
                         faults};
  u64 total = 0;
  for (const Source& source : plan.sources) total += source.target_nbytes;
  const u64 part = tuning_of(queue).zstd.jump_part;
  RecyclingVector<u32> by_jumps, in_order;
  for (u32 i = 0; i < plan.sources.size(); ++i) {
    const Source& source = plan.sources[i];
    if (source.first_block == source.end_block) continue;
    (source.target_nbytes * part > total ? by_jumps : in_order).push_back(i);
  }
  execute_in_order(queue, plan, work, in_order);
  execute_by_jumps(queue, plan, work, by_jumps);
}

}  // namespace headrace::SIMT_SPACE::zstd
