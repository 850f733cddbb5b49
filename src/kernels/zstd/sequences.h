#pragma once

// Sequences of blocks to records. The chain of a block is serial, so it has a leader lane of its
// own that does nothing else; a second warp follows a batch behind and makes records of what the
// leader saved. kStreams blocks share a leader warp: one when there are few blocks, more when the
// leaders' issue slots are what all wait for.
//
//   warp 0      leads     batch 0 | batch 1 | batch 2 | ...    saves to saved[0], saved[1], ...
//   warp 1 + i  records             batch 0 | batch 1 | ...    of stream i, from what was saved
//
// with a barrier of the CTA between any two batches.

#include "kernels/zstd/entries.h"
#include "kernels/zstd/format.h"
#include "kernels/zstd/fse.h"

namespace headrace::SIMT_SPACE::zstd {

struct SequenceWork {
  const Source* sources;
  const Block* blocks;
  const u32* list;  // blocks with sequences
  u32 count;
  Record* records;
  BlockResult* results;
  u32* faults;
};

inline constexpr u32 kBatch = simt::kWarp;

// Tables and the bit stream of one block.
template <class Entries>
struct SequenceStream {
  struct Opening {
    FseCount counts[4][kMaxFseSymbols];
    FseWork fse;
  };
  alignas(16) typename Entries::Entry cells[kCells];
  union {
    Opening opening;
    simt::Quad saved[2][kBatch];
  };
  Chain chain;
  u32 count;  // sequences; 0 if there is something wrong
  i32 end;    // position at which the stream must be used up
};

struct TableSource {
  u32 log = 0;
  u32 symbols = 0;        // 0: malformed
  u32 single = kUnknown;  // the only symbol of an RLE table
  u32 end = 0;
};

// https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.3.2.1: a mode a table, 0 predefined, 1 RLE,
// 2 described here, 3 repeated. Lanes 0 to 2 find the three tables, lane 3 the end of the block's
// own descriptions. A table that is repeated is described in an earlier block, and built again
// here: that takes a few microseconds of one warp and spares 10 KiB of device memory a block.
SIMT_DEVICE TableSource find_table(const u8* data, const Block& block, u32 lane, FseCount* counts) {
  const bool own = lane == 3;
  u32 at = own ? block.modes_at : block.tables_at[lane];
  const u32 end = own ? block.end : block.tables_end[lane];
  const u32 modes = data[at++];
  for (u32 table = 0; table < 3; ++table) {
    const u32 mode = modes >> (6 - 2 * table) & 3;
    const bool wanted = table == lane;
    if (mode == 0 && wanted) {
      for (u32 i = 0; i < kPredefinedSymbols[table]; ++i) counts[i] = kPredefined[table][i];
      return {kPredefinedLogs[table], kPredefinedSymbols[table]};
    }
    if (mode == 1) {
      if (at == end || data[at] > kMaxSymbols[table]) return {};
      if (wanted) return {0, 1, data[at]};
      ++at;
    }
    if (mode == 2) {
      const FseDescription found =
          read_fse_description(data + at, end - at, kMaxSymbols[table], kMaxLogs[table], counts);
      if (found.nbytes == 0) return {};
      if (wanted) return {found.log, found.symbols};
      at += found.nbytes;
    }
  }
  return {0, 1, kUnknown, at};
}

template <class Entries>
SIMT_DEVICE void build_table(SequenceStream<Entries>& stream,
                             u32 table,
                             const TableSource& source) {
  auto* cells = stream.cells + kFirstCell[table];
  const simt::SharedAddress address = simt::shared_address(cells);
  const auto make = [&](u32 code, u32 bits, u32 next) {
    const u32 extra = table == kLiteralLengths ? code_bits(kLiteralLengthCodes[code])
                      : table == kMatchLengths ? code_bits(kMatchLengthCodes[code])
                                               : code;
    return Entries::make(code, extra, bits, next, address);
  };
  if (source.single != kUnknown) {
    if (simt::lane_index() == 0) cells[0] = make(source.single, 0, 0);
    simt::sync_warp();
    return;
  }
  build_fse_cells(
      cells, source.log, stream.opening.counts[table], source.symbols, stream.opening.fse, make);
}

// By a warp: makes the stream ready for its leader.
template <class Entries>
SIMT_DEVICE void open(SequenceStream<Entries>& stream, const u8* data, const Block& block) {
  const u32 lane = simt::lane_index();
  TableSource found;
  if (lane < 4) found = find_table(data, block, lane, stream.opening.counts[lane]);
  const u32 begin = simt::shuffle(found.end, 3);
  const bool good =
      simt::all(lane >= 4 || found.symbols != 0) && begin < block.end && data[block.end - 1] != 0;
  if (lane == 0) stream.count = good ? block.sequence_count : 0;
  if (!good) return;
  simt::sync_warp();
  for (u32 table = 0; table < 3; ++table)
    build_table(stream,
                table,
                {simt::shuffle(found.log, table),
                 simt::shuffle(found.symbols, table),
                 simt::shuffle(found.single, table)});

  // The stream is read backward from below its highest set bit. The first states come first:
  // literal lengths, offsets, match lengths.
  // https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.3.2.1.2
  const auto [words, skipped] = words_of<u32>(data + begin);
  i32 position =
      static_cast<i32>((skipped + block.end - begin - 1) * 8 + highest_bit(data[block.end - 1]));
  u32 cells[3];
  for (u32 table = 0; table < 3; ++table) {
    const u32 log = simt::shuffle(found.log, table);
    cells[table] = kFirstCell[table] + top_bits(bits_below(words, position), log);
    position -= static_cast<i32>(log);
  }
  if (lane != 0) return;
  stream.end = static_cast<i32>(skipped * 8);
  stream.chain = {words,
                  position,
                  simt::shared_address(stream.cells + cells[kLiteralLengths]),
                  simt::shared_address(stream.cells + cells[kOffsets]),
                  simt::shared_address(stream.cells + cells[kMatchLengths])};
}

// One batch of the serial chain, by one lane.
template <class Entries>
SIMT_DEVICE void lead(Chain& chain, u32 count, SequenceStream<Entries>& stream, u32 parity) {
  const simt::SharedAddress save = simt::shared_address(stream.saved[parity]);
  const simt::SharedAddress tables = simt::shared_address(stream.cells);
  constexpr i32 kReach = kBatch * kMaxSequenceBits + 96;
  if (chain.position < kReach || !advance<Entries>(chain, count, save, tables))
    chain = advance_checked<Entries>(chain, count, save, tables);
}

// What a sequence is: codes say how many extra bits follow, and these come in the order offset,
// match length, literal length. After them the states move on, in the order literal length, match
// length, offset: that part is the leader's.
// https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.3.2.1.2, codes: 3.1.1.3.2.1.1
struct SequenceValues {
  u32 literal_length = 0, match_length = 0, offset_value = 4;
  i32 end = 0;  // position behind the extra bits
};
template <class Entries>
SIMT_DEVICE SequenceValues read_sequence(const u32* words, const simt::Quad& saved) {
  const u32 offset_code = Entries::code(Entries::load(saved.z));
  const u32 match = kMatchLengthCodes[Entries::code(Entries::load(saved.w))];
  const u32 literal = kLiteralLengthCodes[Entries::code(Entries::load(saved.y))];
  const i32 position = static_cast<i32>(saved.x);
  u64 bits = bits_below(words, position);
  SequenceValues values;
  values.offset_value = (1u << offset_code) + top_bits(bits, offset_code);
  bits <<= offset_code;
  values.match_length = code_baseline(match) + top_bits(bits, code_bits(match));
  bits <<= code_bits(match);
  values.literal_length = code_baseline(literal) + top_bits(bits, code_bits(literal));
  values.end = position - static_cast<i32>(offset_code + code_bits(match) + code_bits(literal));
  return values;
}

// What a sequence does to the three repeat offsets, as a function of those before it.
// https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.5
SIMT_DEVICE RepeatOffsets step_of(u32 offset_value, bool no_literals) {
  const RepeatOffsets same = unchanged();
  const u32 a = same.slot[0], b = same.slot[1], c = same.slot[2];
  if (offset_value > 3) return {{offset_value - 3, a, b}};
  const u32 kind = offset_value - 1 + no_literals;
  if (kind == 0) return same;
  if (kind == 1) return {{b, a, c}};
  if (kind == 2) return {{c, a, b}};
  return {{a | 1, a, b}};
}

// Makes records of the batches of one block, by a warp.
template <class Entries>
class RecordWriter {
 public:
  SIMT_DEVICE RecordWriter(const SequenceWork& work,
                           u32 item,
                           const SequenceStream<Entries>& stream)
      : count_(stream.count), end_(stream.end), words_(stream.chain.words) {
    block_ = work.list[item];
    const Block& block = work.blocks[block_];
    records_ = work.records + block.records;
    literal_count_ = block.literal_count;
    bad_ = count_ == 0;
  }

  SIMT_DEVICE void batch(u32 begin, const simt::Quad* saved) {
    const u32 lane = simt::lane_index();
    if (begin >= count_ || bad_) return;
    const u32 count = min(kBatch, count_ - begin);
    const bool on = lane < count;
    const simt::Quad mine = saved[on ? lane : 0];
    fetch_ahead(static_cast<i32>(simt::shuffle(mine.x, 0)));
    SequenceValues values;
    if (on) values = read_sequence<Entries>(words_, mine);

    const u32 literals = literals_ + simt::inclusive_sum(values.literal_length);
    const u32 match_end = at_ + simt::inclusive_sum(values.literal_length + values.match_length);
    const u32 match_start = match_end - values.match_length;
    const u32 offset = offset_of(values, on, count);
    bool bad = false;
    if (on) {
      bad = !check_offset(offset, match_start);
      if (begin + lane == count_ - 1) bad |= values.end != end_;
      records_[begin + lane] = make_record(match_start, literals, to_record_offset(offset));
    }
    at_ = simt::shuffle(match_end, simt::kWarp - 1);
    literals_ = simt::shuffle(literals, simt::kWarp - 1);
    // Sums of a batch do not overflow, those of more might.
    bad_ = simt::any(bad) || at_ > kMaxBlock || literals_ > literal_count_;
  }

  SIMT_DEVICE void finish(const SequenceWork& work) {
    BlockResult result;
    result.nbytes = at_ + (literal_count_ - literals_);
    result.repeats = repeats_;
    result.reach = simt::reduce_max(reach_);
    SIMT_UNROLL
    for (u32 slot = 0; slot < 3; ++slot) {
      result.least[slot] = simt::reduce_max(least_[slot]);
      result.most[slot] = simt::reduce_min(most_[slot]);
    }
    const bool too_far = simt::any(too_far_);
    if (simt::lane_index() != 0) return;
    const Source& source = work.sources[work.blocks[block_].source];
    if (bad_ || result.nbytes > kMaxBlock) {
      raise(work.faults, source.chunk, Fault::malformed);
      return;
    }
    if (too_far)
      raise(work.faults,
            source.chunk,
            result.reach > source.target_nbytes ? Fault::malformed : Fault::unsupported);
    records_[count_] = make_record(result.nbytes, literal_count_, 1);
    work.results[block_] = result;
  }

 private:
  SIMT_DEVICE static u32 min(u32 a, u32 b) { return a < b ? a : b; }
  SIMT_DEVICE static u32 max(u32 a, u32 b) { return a > b ? a : b; }

  // The leader's next lines, which it would wait for.
  SIMT_DEVICE void fetch_ahead(i32 position) const {
    const i32 lane = static_cast<i32>(simt::lane_index()), word = position >> 5;
    if (lane < 10 && word > 32 * lane) simt::prefetch(words_ + (word - 32 * lane));
  }

  SIMT_DEVICE u32 offset_of(const SequenceValues& values, bool on, u32 count) {
    const u32 lane = simt::lane_index();
    if (simt::all(values.offset_value > 3) && count >= 3) {
      const u32 offset = min(values.offset_value - 3, kTooFar);
      SIMT_UNROLL
      for (u32 slot = 0; slot < 3; ++slot)
        repeats_.slot[slot] = simt::shuffle(offset, count - 1 - slot);
      return offset;
    }
    RepeatOffsets steps =
        on ? step_of(values.offset_value, values.literal_length == 0) : unchanged();
    // A value too far would look like a symbol.
    if (on && values.offset_value > 3) steps.slot[0] = min(steps.slot[0], kTooFar);
    for (unsigned d = 1; d < simt::kWarp; d <<= 1) {
      RepeatOffsets before;
      SIMT_UNROLL
      for (u32 slot = 0; slot < 3; ++slot)
        before.slot[slot] = simt::shuffle_up(steps.slot[slot], d);
      if (lane >= d) steps = compose(steps, before);
    }
    steps = compose(steps, repeats_);
    SIMT_UNROLL
    for (u32 slot = 0; slot < 3; ++slot)
      repeats_.slot[slot] = simt::shuffle(steps.slot[slot], simt::kWarp - 1);
    return steps.slot[0];
  }

  // Collects what the place of the block has to allow for.
  SIMT_DEVICE bool check_offset(u32 offset, u32 match_start) {
    if (offset & kSymbol) {
      const u32 minus = minus_of(offset);
      SIMT_UNROLL
      for (u32 slot = 0; slot < 3; ++slot) {
        const bool meant = slot == slot_of(offset);
        least_[slot] = max(least_[slot], meant ? minus + 1 : 0);
        most_[slot] = min(most_[slot], meant ? minus + match_start : kUnknown);
      }
      return true;
    }
    if (offset > match_start) reach_ = max(reach_, offset - match_start);
    too_far_ |= offset >= kSymbolicRecord;
    return offset != 0;
  }

  // Offsets that a record cannot hold. Nothing writes them into frames below 264 MB.
  static constexpr u32 kTooFar = kSymbol - 1;

  u32 count_;
  i32 end_;
  const u32* words_;
  u32 block_;
  Record* records_;
  u32 literal_count_;
  u32 at_ = 0, literals_ = 0;
  RepeatOffsets repeats_ = unchanged();
  bool bad_ = false, too_far_ = false;
  u32 reach_ = 0;
  u32 least_[3] = {}, most_[3] = {kUnknown, kUnknown, kUnknown};
};

template <class Entries_, unsigned kStreams_>
struct SequenceDecoder {
  using Entries = Entries_;
  static constexpr unsigned kStreams = kStreams_;
  static constexpr unsigned kThreads = simt::kWarp * (1 + kStreams);
  struct Shared {
    SequenceStream<Entries> streams[kStreams];
  };

  SIMT_HOST_DEVICE static u32 groups(u32 count) { return (count + kStreams - 1) / kStreams; }

  SIMT_DEVICE static void run(const SequenceWork& work, u32 group, Shared& shared) {
    const u32 warp = simt::warp_index(), lane = simt::lane_index(), first = group * kStreams;
    const u32 streams = work.count - first < kStreams ? work.count - first : kStreams;
    if (warp > streams) return;
    if (warp > 0) {
      const Block& block = work.blocks[work.list[first + warp - 1]];
      open(shared.streams[warp - 1], work.sources[block.source].data, block);
    }
    simt::sync_cta();
    u32 longest = 0;
    for (u32 i = 0; i < streams; ++i)
      if (shared.streams[i].count > longest) longest = shared.streams[i].count;
    if (warp == 0) {
      lead_all(shared, lane < streams, longest);
    } else {
      auto& stream = shared.streams[warp - 1];
      RecordWriter<Entries> writer(work, first + warp - 1, stream);
      for (u32 begin = 0; begin < longest + kBatch; begin += kBatch) {
        if (begin) writer.batch(begin - kBatch, stream.saved[(begin / kBatch - 1) & 1]);
        simt::sync_cta();
      }
      writer.finish(work);
    }
  }

 private:
  SIMT_DEVICE static void lead_all(Shared& shared, bool leads, u32 longest) {
    auto& stream = shared.streams[leads ? simt::lane_index() : 0];
    Chain chain = stream.chain;
    const u32 count = leads ? stream.count : 0;
    for (u32 begin = 0; begin < longest + kBatch; begin += kBatch) {
      if (begin < count)
        lead(chain, count - begin < kBatch ? count - begin : kBatch, stream, begin / kBatch & 1);
      simt::sync_cta();
    }
  }
};

}  // namespace headrace::SIMT_SPACE::zstd
