// A CTA a block: one builds the Huffman code while three warps build the FSE tables;
// then a warp a stream writes literals while one more writes the sequences.

#include "kernels/zstd/encode/block.h"

namespace headrace::SIMT_SPACE::zstd {
namespace {

struct EncodeBlock {
  static constexpr unsigned kThreads = (kStreams + 1) * simt::kWarp;
  struct Shared {
    u32 totals[kMaxHuffmanSymbols];  // of literals
    HuffmanEncoder huffman;
    HuffmanEncoderWork huffman_work;
    FseEncoder tables[3];
    FseEncoderWork table_work[3];
    TableMode modes[3];
    u32 stream_nbytes[kStreams];
    u32 words[kStreams + 1][WarpBits::kWords];
    // Of 32 sequences.
    FseTransition transitions[3][simt::kWarp + 1];  // the last one is read and not used
    u16 steps[3][simt::kWarp];  // bits of a change of state | their number << kStepShift
  };
  FrameJobs jobs;
  SequencePool pool;
  const u8* literals;
  const BlockStatistics* statistics;
  u8* encoded;
  EncodedBlock* results;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const u64 block = simt::cta_index();
    const BlockInput input = block_input(jobs.find(block), block, pool.block_nbytes);
    const BlockStatistics& found = statistics[block];
    const u32 thread = simt::thread_index();
    u8* const out = encoded + block * (u64{pool.block_nbytes} + kEncodedSlack);
    for (u32 s = thread; s < kMaxHuffmanSymbols; s += kThreads) {
      u32 total = 0;
      for (u32 stream = 0; stream < kStreams; ++stream) total += found.literal_counts[stream][s];
      shared.totals[s] = total;
    }
    simt::sync_cta();
    sort_symbols(shared.totals, shared.huffman_work);
    simt::sync_cta();
    // All matches copy literals: one value of these is one value of the block.
    if (shared.huffman_work.n_sorted <= 1) {
      const bool empty = shared.huffman_work.n_sorted == 0;
      if (thread == 0) {
        out[0] = shared.huffman_work.sorted[0];
        results[block] = {empty ? 0 : 1u, empty ? BlockKind::raw : BlockKind::constant};
      }
      return;
    }
    make_tables(shared, found);
    simt::sync_cta();

    const u8* const from = found.sequences ? literals + block * pool.block_nbytes : input.source;
    const Layout layout = lay_out(shared, found);
    u32 nbytes = ~0u;
    if (layout.end < input.nbytes) {
      if (thread == 0) put_headers(shared, found, layout, out);
      if (simt::warp_index() == kStreams)
        nbytes = put_sequences(shared, block, found.sequences, input.nbytes, layout, out);
      else
        put_literals(shared, found, from, layout, out);
    }
    if (thread != kStreams * simt::kWarp) return;
    results[block] = nbytes < input.nbytes ? EncodedBlock{nbytes, BlockKind::compressed}
                                           : EncodedBlock{input.nbytes, BlockKind::raw};
  }

 private:
  static constexpr u32 kStepShift = 9;

  // Where the parts of a block begin that have a size before they are written.
  struct Layout {
    LiteralForm form;
    LiteralHeader header;
    u32 description;  // of the Huffman code; or raw literals
    u32 streams;
    u32 sequences;
    u32 tables;
    u32 end;  // and begin of the sequences' bits, if there are any
  };

  SIMT_DEVICE static void make_tables(Shared& shared, const BlockStatistics& found) {
    HuffmanEncoderWork& work = shared.huffman_work;
    const u32 warp = simt::warp_index();
    if (warp == 0) {
      if (simt::lane_index() == 0) {
        find_code_lengths(work);
        limit_code_lengths(work);
        assign_codes(work, shared.huffman);
      }
      simt::sync_warp();
      describe_codes(work, shared.huffman);
    } else if (warp <= 3 && found.sequences > 0) {
      make_sequence_table(shared, found, warp - 1);
    }
    simt::sync_cta();
    if (warp < kStreams) {
      u32 bits = 0;
      for (u32 s = simt::lane_index(); s < kMaxHuffmanSymbols; s += simt::kWarp)
        bits += found.literal_counts[warp][s] * huffman_bits(shared.huffman.codes[s]);
      bits = simt::reduce_add(bits);
      if (simt::lane_index() == 0) shared.stream_nbytes[warp] = bits / 8 + 1;
    }
  }

  // The cheapest of the ways to describe a table.
  SIMT_DEVICE static void make_sequence_table(Shared& shared, const BlockStatistics& found, u32 t) {
    const u32 lane = simt::lane_index();
    const u32* const counts = found.code_counts[t];
    FseEncoder& table = shared.tables[t];
    u32 last = 0, kinds = 0;
    for (u32 s = lane; s < kCodeSymbols; s += simt::kWarp) {
      if (counts[s] == 0) continue;
      last = s;
      ++kinds;
    }
    last = simt::reduce_max(last);
    if (simt::reduce_add(kinds) == 1) {
      if (lane == 0) {
        make_constant(table, last);
        table.description[0] = static_cast<u8>(last);
        table.description_nbytes = 1;
        shared.modes[t] = TableMode::constant;
      }
      return;
    }
    share_states(counts, last + 1, found.sequences, kMaxLogs[t], table);
    if (lane == 0) describe_fse(table);
    simt::sync_warp();
    const u32 own = fse_bits(counts, last + 1, table.log, [&](u32 s) { return table.counts[s]; });
    const u32 predefined =
        fse_bits(counts, last + 1, kPredefinedLogs[t], [&](u32 s) { return kPredefined[t][s]; });
    const bool described = own + 8 * table.description_nbytes < predefined;
    simt::sync_warp();
    if (!described) {
      for (u32 s = lane; s < kPredefinedSymbols[t]; s += simt::kWarp)
        table.counts[s] = kPredefined[t][s];
      if (lane == 0) {
        table.log = kPredefinedLogs[t];
        table.symbols = kPredefinedSymbols[t];
        table.description_nbytes = 0;
      }
    }
    if (lane == 0) shared.modes[t] = described ? TableMode::described : TableMode::predefined;
    simt::sync_warp();
    build_fse_encoder(table, shared.table_work[t]);
  }

  SIMT_DEVICE static Layout lay_out(const Shared& shared, const BlockStatistics& found) {
    const u32 n = found.literals, description = shared.huffman.description_nbytes;
    u32 streams = shared.stream_nbytes[0];
    if (n >= 256) {
      streams += 6;  // Jump_Table
      for (u32 i = 1; i < kStreams; ++i) streams += shared.stream_nbytes[i];
    }
    Layout layout;
    layout.form = LiteralForm::huffman;
    layout.header = literal_header(LiteralForm::huffman, n, description + streams);
    const LiteralHeader raw = literal_header(LiteralForm::raw, n, n);
    u32 content = description + streams;
    if (description == 0 || layout.header.nbytes + content >= raw.nbytes + n) {
      layout.form = LiteralForm::raw;
      layout.header = raw;
      content = n;
    }
    layout.description = layout.header.nbytes;
    layout.streams = layout.description + description;
    layout.sequences = layout.header.nbytes + content;
    layout.tables = layout.end = layout.sequences + sequences_header_nbytes(found.sequences);
    for (u32 t = 0; found.sequences > 0 && t < 3; ++t)
      layout.end += shared.tables[t].description_nbytes;
    return layout;
  }

  // By one thread: all that is no stream of bits.
  SIMT_DEVICE static void put_headers(const Shared& shared,
                                      const BlockStatistics& found,
                                      const Layout& layout,
                                      u8* out) {
    for (u32 i = 0; i < layout.header.nbytes; ++i)
      out[i] = static_cast<u8>(layout.header.bits >> 8 * i);
    if (layout.form == LiteralForm::huffman) {
      for (u32 i = 0; i < shared.huffman.description_nbytes; ++i)
        out[layout.description + i] = shared.huffman.description[i];
      for (u32 i = 0; found.literals >= 256 && i < kStreams - 1; ++i) {
        out[layout.streams + 2 * i] = static_cast<u8>(shared.stream_nbytes[i]);
        out[layout.streams + 2 * i + 1] = static_cast<u8>(shared.stream_nbytes[i] >> 8);
      }
    }
    if (found.sequences == 0) {
      out[layout.sequences] = 0;
      return;
    }
    put_sequences_header(out + layout.sequences, found.sequences, shared.modes);
    u32 at = layout.tables;
    for (u32 t = 0; t < 3; ++t)
      for (u32 i = 0; i < shared.tables[t].description_nbytes; ++i)
        out[at++] = shared.tables[t].description[i];
  }

  // By the warps of the streams.
  SIMT_DEVICE static void put_literals(
      Shared& shared, const BlockStatistics& found, const u8* from, const Layout& layout, u8* out) {
    const u32 stream = simt::warp_index(), n = found.literals;
    if (layout.form == LiteralForm::raw) {
      for (u32 i = simt::thread_index(); i < n; i += kStreams * simt::kWarp)
        out[layout.description + i] = from[i];
      return;
    }
    const u32 share = stream_nbytes(n), begin = stream * share;
    if (begin >= n) return;
    u32 at = layout.streams + (n >= 256 ? 6 : 0);
    for (u32 i = 0; i < stream; ++i) at += shared.stream_nbytes[i];
    WarpBits bits(shared.words[stream], out + at);
    // The last literal comes first.
    constexpr u32 kEach = 4;
    for (u32 left = begin + share < n ? share : n - begin; left > 0;) {
      const u32 taken = left < kEach * simt::kWarp ? left : kEach * simt::kWarp;
      u64 value = 0;
      u32 count = 0;
      for (u32 i = simt::lane_index() * kEach; i < (simt::lane_index() + 1) * kEach && i < taken;
           ++i) {
        const u32 code = shared.huffman.codes[from[begin + left - 1 - i]];
        value |= u64{code & 0xffff} << count;
        count += huffman_bits(code);
      }
      bits.put(value, count);
      left -= taken;
    }
    bits.finish();
  }

  // By one warp. Gives the size of the block, or any from `limit` on when that is reached.
  SIMT_DEVICE u32
  put_sequences(Shared& shared, u64 block, u32 n, u32 limit, const Layout& layout, u8* out) const {
    if (n == 0) return layout.end;
    const u32 lane = simt::lane_index();
    WarpBits bits(shared.words[kStreams], out + layout.end);
    u32 state = 0;
    // The last sequence comes first. The next ones are loaded while these go through their states.
    const u64* const sequences = pool.of_block(block);
    const auto load = [&](u32 done) {
      return done + lane < n ? sequences[n - 1 - done - lane] : 0;
    };
    u64 next = load(0);
    for (u32 done = 0; done < n && layout.end + bits.nbytes() < limit; done += simt::kWarp) {
      const u32 taken = n - done < simt::kWarp ? n - done : simt::kWarp;
      const Triple sequence = unpack(next);
      next = load(done + simt::kWarp);
      SequenceCodes codes{};
      if (lane < taken) {
        codes = codes_of(sequence.a, sequence.b, sequence.c);
        for (u32 t = 0; t < 3; ++t)
          shared.transitions[t][lane] = done + lane == 0
                                            ? first_transition(shared.tables[t], codes.code[t])
                                            : transition_of(shared.tables[t], codes.code[t]);
      }
      simt::sync_warp();
      if (lane < 3) state = take_steps(shared, lane, taken, state);
      simt::sync_warp();
      put_tile(bits, shared, lane < taken, sequence, codes);
      simt::sync_warp();
    }
    const u32 literals_state = simt::shuffle(state, kLiteralLengths),
              offset_state = simt::shuffle(state, kOffsets),
              match_state = simt::shuffle(state, kMatchLengths);
    Joined last;
    if (lane == 0) {
      last.add_state(match_state, shared.tables[kMatchLengths].log);
      last.add_state(offset_state, shared.tables[kOffsets].log);
      last.add_state(literals_state, shared.tables[kLiteralLengths].log);
    }
    bits.put(last.value, last.bits);
    bits.finish();
    return layout.end + bits.nbytes();
  }

  struct Joined {
    u64 value = 0;
    u32 bits = 0;
    SIMT_DEVICE void add(u32 v, u32 n) {
      value |= u64{v} << bits;
      bits += n;
    }
    SIMT_DEVICE void add_state(u32 state, u32 log) { add(state & low_mask(log), log); }
  };

  // By one thread: the states of one table along the tile's sequences. Each step has to wait for
  // the one before it, so all that does not depend on the state is in the transitions, and the
  // next one of these is there before it is needed.
  SIMT_DEVICE static u32 take_steps(Shared& shared, u32 t, u32 count, u32 state) {
    FseTransition by = shared.transitions[t][0];
    for (u32 i = 0; i < count; ++i) {
      const FseTransition next = shared.transitions[t][i + 1];
      const FseStep step = step_by(shared.tables[t], by, state);
      shared.steps[t][i] = static_cast<u16>(step.value | step.bits << kStepShift);
      by = next;
    }
    return state;
  }

  SIMT_DEVICE static void put_tile(WarpBits& bits,
                                   const Shared& shared,
                                   bool valid,
                                   const Triple& sequence,
                                   const SequenceCodes& codes) {
    Joined low;
    u32 offset_bits = 0, offset_extra = 0;
    if (valid) {
      const u32 lane = simt::lane_index();
      const auto add_step = [&](u32 t) {
        const u32 step = shared.steps[t][lane];
        low.add(step & low_mask(kStepShift), step >> kStepShift);
      };
      add_step(kOffsets);
      add_step(kMatchLengths);
      add_step(kLiteralLengths);
      const u32 literal_code = kLiteralLengthCodes[codes.code[kLiteralLengths]];
      const u32 match_code = kMatchLengthCodes[codes.code[kMatchLengths]];
      low.add(sequence.a - code_baseline(literal_code), code_bits(literal_code));
      low.add(sequence.b - code_baseline(match_code), code_bits(match_code));
      offset_bits = codes.code[kOffsets];
      offset_extra = sequence.c - (1u << offset_bits);
    }
    bits.put(low.value, low.bits, offset_extra, offset_bits);
  }
};

}  // namespace

void encode_blocks(Queue& queue, const FrameJobs& jobs, u64 blocks, const EncodeStages& stages) {
  simt::launch(queue,
               blocks,
               EncodeBlock{jobs,
                           pool_of(stages),
                           stages.literals.data(),
                           stages.statistics.data(),
                           stages.encoded.data(),
                           stages.results.data()});
}

}  // namespace headrace::SIMT_SPACE::zstd
