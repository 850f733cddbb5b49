#pragma once

// Which kernels decode a batch of LZ streams.

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "kernels/common/fault_list.h"
#include "kernels/lz/execute.h"
#include "kernels/lz/map.h"
#include "kernels/lz/parse.h"
#include "kernels/lz/sparse.h"
#include "kernels/tuning.h"
#include "simt/ranges.h"

namespace headrace::SIMT_SPACE {

// A group of segments in the parse: bytes of source, and of the tables of its kernels.
struct LzGroup {
  u32 nbytes, table_nbytes;
  u32 count(u32 source_nbytes) const { return (source_nbytes + nbytes - 1) / nbytes; }
};

// Of streams that are decoded together.
struct LzSums {
  u64 nbytes = 0;        // of sources or targets, what is more
  u64 records = 0;       // the most there can be
  u64 most_records = 0;  // of one stream
  u64 tables_nbytes = 0;
  u32 streams = 0, groups = 0, tiles = 0, largest = 0;
  u32 longest = 0;  // source
  u32 scouts = 0;   // streams that may be sparse

  static u64 nbytes_of(const Frame& frame) {
    return std::max(frame.source_nbytes, frame.target_nbytes);
  }

  // Whether they are to be decoded before `frame` is.
  bool full_for(const Frame& frame, const LzGroup& group, const Tuning::Lz& tuning) const {
    if (streams == 0) return false;
    const u64 more = u64{group.count(static_cast<u32>(frame.source_nbytes))} * group.table_nbytes;
    return nbytes + nbytes_of(frame) > tuning.slab_nbytes ||
           tables_nbytes + more > tuning.slab_tables_nbytes;
  }

  // The stream that joins them.
  template <class Dialect>
  LzStream add(const Frame& frame, const LzGroup& group) {
    const auto from = static_cast<u32>(frame.source_nbytes),
               to = static_cast<u32>(frame.target_nbytes);
    const LzStream stream{frame.source, frame.target, from, to, frame.chunk, groups, tiles};
    u64 of_stream = SIMT_SPACE::most_records<Dialect>(from, to);
    most_records = std::max(most_records, of_stream);
    if (may_be_sparse(from, to)) {
      of_stream += scouted_records<Dialect>(from, to);  // and the others, should it give up
      ++scouts;
    }
    records += of_stream;
    groups += group.count(from);
    tables_nbytes += u64{group.count(from)} * group.table_nbytes;
    tiles += LzJumpTiles::count(to);
    nbytes += nbytes_of(frame);
    largest = std::max(largest, to);
    longest = std::max(longest, from);
    ++streams;
    return stream;
  }
};

enum class LzParse { guessed, mapped, refused };

struct LzSlab {
  LzParse parse;
  LzSums sums{};
  std::vector<LzSums> before{};  // each range of the frames that it is of

  bool is_mapped() const { return parse == LzParse::mapped; }
  bool is_led(const Tuning::Lz& tuning) const {
    return sums.streams >= tuning.lead_streams && sums.longest <= tuning.lead_longest &&
           waves(tuning) == 1;
  }
  // Planes that hardly shrink are few tokens too, but blosc stores those as they are.
  bool is_scouted(const Tuning::Lz& tuning) const {
    return sums.scouts != 0 && !is_mapped() && !is_led(tuning);
  }
  template <class Dialect>
  LzGroup group() const {
    return is_mapped() ? LzGroup{LzMapCut::kGroup, kLzMapTables + kLzStretches<LzMapCut>}
                       : LzGroup{Dialect::Guess::kGroup, kLzStretches<typename Dialect::Guess>};
  }

  bool in_order(const Tuning::Lz& tuning) const {
    const u64 streams = is_mapped() ? tuning.order_streams_of_planes : tuning.order_streams;
    return sums.largest * streams <= sums.nbytes + tuning.order_head_start;
  }

  // The records of a wave, and how many waves there can be.
  u64 wave_records(const Tuning::Lz& tuning) const {
    const u64 entries =
        in_order(tuning) ? 0 : u64{std::min(sums.tiles, tuning.jump_tiles)} * kLzJumpTileEntries;
    const u64 others = entries + sums.tables_nbytes;
    const u64 room = (std::max(tuning.slab_scratch, others) - others) / sizeof(LzRecord);
    if (sums.records <= room) return sums.records;
    return room > 2 * sums.most_records ? room - sums.most_records : sums.most_records;
  }
  u32 waves(const Tuning::Lz& tuning) const {
    const u64 of_wave = wave_records(tuning);
    return static_cast<u32>((sums.records + of_wave - 1) / of_wave);
  }
  u64 pool_records(const Tuning::Lz& tuning) const {
    return std::min(sums.records, wave_records(tuning) + sums.most_records);
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

// Counts the tokens of all streams, then calls run(put); put(batch) makes the records of a wave.
template <class Dialect, class Run>
void parse_guessed(Queue& queue, const LzBatch& batch, u32 n_groups, const Run& run) {
  using Cut = typename Dialect::Guess;
  const LzScratch<Cut> scratch(queue, batch, n_groups);
  const LzTables& tables = scratch.tables;
  const u32 ctas = (n_groups + 3) / 4;  // a warp a group
  if (batch.any_scouts) simt::launch(queue, batch.n_streams, LzScout<Dialect>{batch});
  simt::launch(queue, ctas, LzGuess<Dialect>{tables});
  simt::launch(queue, batch.n_streams, LzJoin<Dialect, Cut>{tables});
  run([&](const LzBatch& wave) {
    LzTables of_wave = tables;
    of_wave.batch = wave;
    simt::launch(queue, ctas, LzWrite<Dialect, Cut>{of_wave});
  });
}

template <class Dialect, class Run>
void parse_mapped(Queue& queue, const LzBatch& batch, u32 n_groups, const Run& run) {
  using Cut = LzMapCut;
  const LzScratch<Cut> scratch(queue, batch, n_groups);
  const Scratch<u8> paths(queue, u64{n_groups} * kLzPaths);
  const Scratch<u32> positions(queue, u64{n_groups} * (Cut::kSegment + 2));
  u32* const common = positions.data() + u64{n_groups} * Cut::kSegment;
  const LzMapTables map{scratch.tables, positions.data(), paths.data(), common, common + n_groups};
  const u32 ctas = (n_groups + 3) / 4;
  simt::launch(queue, ctas, LzMap<Dialect>{map});
  simt::launch(queue, batch.n_streams, LzLink<Dialect>{map});
  simt::launch(queue, ctas, LzCount<Dialect>{map});
  simt::launch(queue, batch.n_streams, LzJoin<Dialect, Cut>{scratch.tables});
  run([&](const LzBatch& wave) {
    LzMapTables of_wave = map;
    of_wave.tables.batch = wave;
    simt::launch(queue, ctas, LzPut<Dialect>{of_wave});
  });
}

// Calls execute(batch) for each wave, once its records are there.
template <class Dialect, class Execute>
void parse_lz(Queue& queue,
              const LzBatch& batch,
              const LzSlab& slab,
              const Tuning::Lz& tuning,
              const Execute& execute) {
  if (slab.is_led(tuning)) {
    constexpr u32 kLanes = LzLead<Dialect>::kLanes;
    simt::launch(queue, (batch.n_streams + kLanes - 1) / kLanes, LzLead<Dialect>{batch});
    return execute(batch);
  }
  const auto run = [&](const auto& put) {
    LzBatch wave = batch;
    for (; wave.wave < slab.waves(tuning); ++wave.wave) {
      put(wave);
      execute(wave);
    }
  };
  if (slab.is_mapped())
    parse_mapped<Dialect>(queue, batch, slab.sums.groups, run);
  else
    parse_guessed<Dialect>(queue, batch, slab.sums.groups, run);
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
void execute_lz(Queue& queue, const LzBatch& batch, const LzSlab& slab, const Tuning::Lz& tuning) {
  if (batch.any_scouts && batch.wave == 0) {
    simt::launch(queue, slab.sums.tiles, LzCopyLiterals<Dialect>{batch});
    simt::launch(queue, batch.n_streams, LzCopyMatches<Dialect>{batch});
  }
  if (!slab.in_order(tuning))
    execute_jumping<Dialect>(queue, batch, slab.sums.tiles, tuning.jump_tiles);
  else if (slab.sums.largest <= tuning.small_stream || !fits<LzOrder<Dialect, 16384>>(queue))
    simt::launch(queue, batch.n_streams, LzOrder<Dialect, 4096>{batch});
  else if (batch.n_streams > tuning.few_streams || slab.sums.largest <= tuning.middle_stream ||
           !fits<LzOrder<Dialect, 32768>>(queue))
    simt::launch(queue, batch.n_streams, LzOrder<Dialect, 16384>{batch});
  else
    simt::launch(queue, batch.n_streams, LzOrder<Dialect, 32768>{batch});
}

// Guesses are for streams that hold mostly literals. Where they shrink more than this, as planes of
// bytes do, chains of wrong tokens live long, and the map is bounded by what there is to read.
inline bool shrinks_much(const Frame& frame) {
  return frame.source_nbytes * 3 < frame.target_nbytes * 2;
}

inline LzParse parse_of(const Frame& frame, bool planes) {
  if (LzSums::nbytes_of(frame) >= kMaxStream) return LzParse::refused;
  return planes || shrinks_much(frame) ? LzParse::mapped : LzParse::guessed;
}

// Those of the frames that the slab's parse is for.
template <class Dialect>
void decode_slab(Queue& queue,
                 const LzSlab& slab,
                 std::span<const Frame> frames,
                 const DecodeBatch& batch,
                 const Tuning::Lz& tuning) {
  const LzSums& sums = slab.sums;
  if (sums.streams == 0) return;
  // Streams, and behind them the count of records taken.
  const u64 streams_nbytes = sums.streams * sizeof(LzStream);
  static_assert(sizeof(LzStream) % sizeof(u64) == 0);
  const Scratch<u8> memory(queue, streams_nbytes + sizeof(u64));
  queue.upload_made(memory.data(), memory.size(), [&](void* host) {
    auto* const list = static_cast<LzStream*>(host);
    *reinterpret_cast<u64*>(static_cast<u8*>(host) + streams_nbytes) = 0;
    for_each_range(frames.size(), kListRange, [&](std::size_t begin, std::size_t end) {
      LzSums before = slab.before[begin / kListRange];
      for (const Frame& frame : frames.subspan(begin, end - begin)) {
        if (parse_of(frame, batch.planes) != slab.parse) continue;
        const u32 place = before.streams;
        list[place] = before.add<Dialect>(frame, slab.template group<Dialect>());
      }
    });
  });
  const Scratch<LzRecord> records(queue, slab.pool_records(tuning));
  const Scratch<LzParsed> parsed(queue, sums.streams);
  const LzBatch of_slab{reinterpret_cast<const LzStream*>(memory.data()),
                        sums.streams,
                        {records.data(),
                         reinterpret_cast<u64*>(memory.data() + streams_nbytes),
                         slab.wave_records(tuning)},
                        parsed.data(),
                        batch.faults,
                        slab.is_scouted(tuning)};
  parse_lz<Dialect>(queue, of_slab, slab, tuning, [&](const LzBatch& wave) {
    execute_lz<Dialect>(queue, wave, slab, tuning);
  });
}

// The first of the frames, as many as fit into a slab of either parse; at least one.
struct LzPlan {
  std::array<LzSlab, 2> slabs{LzSlab{LzParse::guessed}, LzSlab{LzParse::mapped}};
  std::size_t n = 0;
};

template <class Dialect>
LzPlan plan_slabs(std::span<const Frame> frames,
                  bool planes,
                  const Tuning::Lz& tuning,
                  std::vector<FrameFault>& refused) {
  LzPlan plan;
  for (std::size_t& n = plan.n; n < frames.size(); ++n) {
    const Frame& frame = frames[n];
    const LzParse parse = parse_of(frame, planes);
    if (n % kListRange == 0)
      for (LzSlab& slab : plan.slabs) slab.before.push_back(slab.sums);
    if (parse == LzParse::refused) {
      refused.push_back({frame.chunk, Fault::unsupported});
      continue;
    }
    LzSlab& slab = plan.slabs[parse == LzParse::mapped];
    const LzGroup group = slab.template group<Dialect>();
    if (slab.sums.full_for(frame, group, tuning)) break;
    slab.sums.add<Dialect>(frame, group);
  }
  return plan;
}

// Gives the number of frames that it decoded.
template <class Dialect>
std::size_t decode_slabs(Queue& queue,
                         std::span<const Frame> frames,
                         const DecodeBatch& batch,
                         const Tuning::Lz& tuning,
                         std::vector<FrameFault>& refused) {
  const LzPlan plan = plan_slabs<Dialect>(frames, batch.planes, tuning, refused);
  for (const LzSlab& slab : plan.slabs)
    decode_slab<Dialect>(queue, slab, frames.first(plan.n), batch, tuning);
  return plan.n;
}

template <class Dialect>
void decode_lz(Queue& queue, const DecodeBatch& batch, const Tuning::Lz& tuning) {
  std::vector<FrameFault> refused;
  for (std::size_t done = 0; done < batch.frames.size();)
    done += decode_slabs<Dialect>(queue, batch.frames.subspan(done), batch, tuning, refused);
  raise_faults(queue, refused, batch.faults);
}

template <class Dialect>
void decode_lz(Queue& queue, const DecodeBatch& batch) {
  decode_lz<Dialect>(queue, batch, tuning_of(queue).lz);
}

}  // namespace headrace::SIMT_SPACE
