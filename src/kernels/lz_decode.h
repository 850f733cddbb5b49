#pragma once

// Which kernels decode a batch of LZ streams, measured on one NVIDIA H200.

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/fault_list.h"
#include "kernels/lz_execute.h"
#include "kernels/lz_map.h"
#include "kernels/lz_parse.h"
#include "simt/recycling_vector.h"

namespace headrace::SIMT_SPACE {

// What is worked on at once, which bounds the scratch memory: records take up to 2 bytes of a
// decoded byte, jump's entries 4.
inline constexpr u64 kLzSlab = u64{512} << 20;
inline constexpr u32 kLzJumpTiles = 4096;  // 64 MiB decoded
// From here on a lane a stream is the fastest parse.
inline constexpr std::size_t kLzLeadStreams = 16000;

struct LzSlab {
  u32 group_nbytes;  // of the cut
  RecyclingVector<LzStream> streams{};
  u64 nbytes = 0;  // of sources or targets, what is more
  u64 records = 0;
  u32 groups = 0, tiles = 0, largest = 0;

  bool is_mapped() const { return group_nbytes == LzMapCut::kGroup; }

  template <class Dialect>
  void add(const Frame& frame) {
    const auto from = static_cast<u32>(frame.source_nbytes),
               to = static_cast<u32>(frame.target_nbytes);
    streams.push_back({frame.source, frame.target, from, to, frame.chunk, groups, records, tiles});
    // One more than can be, and the last token may be shorter.
    records += std::min(from / Dialect::kMinToken, to / Dialect::kMinOutput) + 2;
    groups += (from + group_nbytes - 1) / group_nbytes;
    tiles += LzJumpTiles::count(to);
    nbytes += std::max(from, to);
    largest = std::max(largest, to);
  }
};

// One allocation of both tables: at one chunk the calls for memory count.
template <class Cut>
struct LzScratch {
  LzScratch(Queue& queue, const LzBatch& batch, u64 n_groups)
      : stretches(queue, n_groups * (Cut::kSegments + 1)),
        tables{batch,
               static_cast<u32>(n_groups),
               stretches.data(),
               stretches.data() + n_groups * Cut::kSegments} {}

  Scratch<LzStretch> stretches;
  LzTables tables;
};

template <class Dialect>
void parse_guessed(Queue& queue, const LzBatch& batch, u32 n_groups) {
  using Cut = LzGuessCut;
  const LzScratch<Cut> scratch(queue, batch, n_groups);
  const LzTables& tables = scratch.tables;
  const u32 blocks = (n_groups + 3) / 4;  // a warp a group
  simt::launch(queue, blocks, LzGuess<Dialect>{tables});
  simt::launch(queue, batch.n_streams, LzJoin<Dialect, Cut>{tables});
  simt::launch(queue, blocks, LzWrite<Dialect, Cut>{tables});
}

template <class Dialect>
void parse_mapped(Queue& queue, const LzBatch& batch, u32 n_groups) {
  using Cut = LzMapCut;
  const LzScratch<Cut> scratch(queue, batch, n_groups);
  const Scratch<u8> paths(queue, u64{n_groups} * kLzPaths);
  const Scratch<u32> positions(queue, u64{n_groups} * (Cut::kSegment + 2));
  u32* const common = positions.data() + u64{n_groups} * Cut::kSegment;
  const LzMapTables map{scratch.tables, positions.data(), paths.data(), common, common + n_groups};
  const u32 blocks = (n_groups + 3) / 4;
  simt::launch(queue, blocks, LzMap<Dialect>{map});
  simt::launch(queue, batch.n_streams, LzLink<Dialect>{map});
  simt::launch(queue, blocks, LzCount<Dialect>{map});
  simt::launch(queue, batch.n_streams, LzJoin<Dialect, Cut>{scratch.tables});
  simt::launch(queue, blocks, LzPut<Dialect>{map});
}

template <class Dialect>
void parse_lz(Queue& queue, const LzBatch& batch, const LzSlab& slab) {
  if (slab.streams.size() >= kLzLeadStreams) {
    constexpr u32 kLanes = LzLead<Dialect>::kLanes;
    return simt::launch(queue, (batch.n_streams + kLanes - 1) / kLanes, LzLead<Dialect>{batch});
  }
  if (slab.is_mapped())
    parse_mapped<Dialect>(queue, batch, slab.groups);
  else
    parse_guessed<Dialect>(queue, batch, slab.groups);
}

// order takes the longest stream at some 2.1 GB/s (1.6 of byte planes), jump everything at some 150
// (60 to 70: they have long chains), and some 20 us more.
inline bool in_order(const LzSlab& slab) {
  const u64 streams = slab.is_mapped() ? 42 : 70;
  return slab.largest * streams <= slab.nbytes + 1'200'000;
}

template <class Dialect>
void execute_jumping(Queue& queue, const LzBatch& batch, u32 n_tiles, u32 tiles_at_once) {
  const u32 most = std::min(n_tiles, tiles_at_once);
  const Scratch<u32> entries(queue, u64{most} * LzJumpTiles::kNbytes);
  for (u32 first = 0; first < n_tiles; first += most) {
    const LzJumpTiles tiles{batch, entries.data(), first};
    const u32 n = std::min(most, n_tiles - first);
    simt::launch(queue, n, LzExpand<Dialect>{tiles});
    simt::launch(queue, u64{n} * LzChase::kParts, LzChase{tiles});
  }
}

template <class Dialect>
void execute_lz(Queue& queue, const LzBatch& batch, const LzSlab& slab) {
  if (!in_order(slab))
    execute_jumping<Dialect>(queue, batch, slab.tiles, kLzJumpTiles);
  else if (slab.largest <= 4096)
    simt::launch(queue, batch.n_streams, LzOrder<Dialect, 4096>{batch});
  else if (batch.n_streams > 200 || slab.largest <= 16384)
    simt::launch(queue, batch.n_streams, LzOrder<Dialect, 16384>{batch});
  else
    simt::launch(queue, batch.n_streams, LzOrder<Dialect, 32768>{batch});
}

template <class Dialect>
void decode_slab(Queue& queue, const LzSlab& slab, u32* faults) {
  if (slab.streams.empty()) return;
  const auto streams = Scratch<LzStream>::of(queue, slab.streams.data(), slab.streams.size());
  const Scratch<LzRecord> records(queue, slab.records);
  const Scratch<u32> n_records(queue, slab.streams.size());
  const LzBatch batch{streams.data(),
                      static_cast<u32>(slab.streams.size()),
                      records.data(),
                      n_records.data(),
                      faults};
  parse_lz<Dialect>(queue, batch, slab);
  execute_lz<Dialect>(queue, batch, slab);
}

// Guesses are for streams that hold mostly literals. Where they shrink more than this, as planes of
// bytes do, chains of wrong tokens live long, and the map is bounded by what there is to read.
inline bool shrinks_much(const Frame& frame) {
  return frame.source_nbytes * 3 < frame.target_nbytes * 2;
}

template <class Dialect>
void decode_lz(Queue& queue, const DecodeBatch& batch) {
  std::vector<FrameFault> refused;
  LzSlab guessed{LzGuessCut::kGroup}, mapped{LzMapCut::kGroup};
  for (const Frame& frame : batch.frames) {
    const u64 nbytes = std::max(frame.source_nbytes, frame.target_nbytes);
    if (nbytes >= kMaxStream) {
      refused.push_back({frame.chunk, Fault::unsupported});
      continue;
    }
    LzSlab& slab = batch.planes || shrinks_much(frame) ? mapped : guessed;
    if (slab.streams.empty()) slab.streams.reserve(batch.frames.size());
    if (slab.nbytes + nbytes > kLzSlab) {
      decode_slab<Dialect>(queue, slab, batch.faults);
      slab = LzSlab{slab.group_nbytes};
    }
    slab.add<Dialect>(frame);
  }
  decode_slab<Dialect>(queue, guessed, batch.faults);
  decode_slab<Dialect>(queue, mapped, batch.faults);
  raise_faults(queue, refused, batch.faults);
}

}  // namespace headrace::SIMT_SPACE
