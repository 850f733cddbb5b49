// A CTA a block. One warp builds the Huffman code while three build the FSE tables. Then threads
// take runs of neighbours, of literals (a warp a stream) and of sequences: each counts the bits of
// its own, sums say where these go, and all write at once.

#include "kernels/zstd/encode/block.h"

#include "kernels/common/access.h"
#include "kernels/zstd/encode/sequence_runs.h"

namespace headrace::SIMT_SPACE::zstd {
namespace {

struct EncodeBlock {
  static constexpr unsigned kThreads = kStreams * simt::kWarp, kMinCtas = 8;
  struct Shared {
    u32 totals[kMaxHuffmanSymbols];  // of literals
    HuffmanEncoder huffman;
    HuffmanEncoderWork huffman_work;
    SequenceTables tables;
    FseEncoderWork table_work[3];
    TableMode modes[3];
    u32 stream_nbytes[kStreams];
    SequenceRuns<kThreads>::Shared runs;
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
    u32 nbytes = layout.end;
    SequenceRuns<kThreads> sequences(
        shared.tables, shared.runs, pool.of_block(block), found.sequences);
    if (found.sequences > 0 && nbytes < input.nbytes) nbytes += sequences.settle();
    const bool gains = nbytes < input.nbytes;
    if (thread == 0)
      results[block] = gains ? EncodedBlock{nbytes, BlockKind::compressed}
                             : EncodedBlock{input.nbytes, BlockKind::raw};
    if (!gains) return;
    const BitSection bits{out + layout.end, out + nbytes};
    const LiteralRun run = literal_run(shared, found, from, layout, out);
    if (found.sequences > 0) sequences.share(bits);
    run.share();
    // Before the sync, too: atomics of the first and last word of a section take in bytes beside
    // it.
    put_plain(shared, found, from, layout, out);
    simt::sync_cta();
    run.put(shared.huffman);
    if (found.sequences > 0) sequences.put(bits);
  }

 private:
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
    FseEncoder& table = shared.tables.fse[t];
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
      simt::sync_warp();
      shared.tables.find_transitions(t, counts);
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
    shared.tables.find_transitions(t, counts);
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
      layout.end += shared.tables.fse[t].description_nbytes;
    return layout;
  }

  // All that is no stream of bits.
  SIMT_DEVICE static void put_plain(const Shared& shared,
                                    const BlockStatistics& found,
                                    const u8* literals,
                                    const Layout& layout,
                                    u8* out) {
    const u32 thread = simt::thread_index();
    const auto put = [&](u32 at, const u8* bytes, u32 n) {
      for (u32 i = thread; i < n; i += kThreads) out[at + i] = bytes[i];
    };
    if (thread < layout.header.nbytes)
      out[thread] = static_cast<u8>(layout.header.bits >> 8 * thread);
    if (layout.form == LiteralForm::raw) {
      copy_bytes<kThreads>(out + layout.description, literals, found.literals);
    } else {
      put(layout.description, shared.huffman.description, shared.huffman.description_nbytes);
      if (found.literals >= 256 && thread < 2 * (kStreams - 1))
        out[layout.streams + thread] =
            static_cast<u8>(shared.stream_nbytes[thread / 2] >> thread % 2 * 8);
    }
    if (found.sequences == 0) {
      if (thread == 0) out[layout.sequences] = 0;
      return;
    }
    if (thread == 0) put_sequences_header(out + layout.sequences, found.sequences, shared.modes);
    u32 at = layout.tables;
    for (const FseEncoder& table : shared.tables.fse) {
      put(at, table.description, table.description_nbytes);
      at += table.description_nbytes;
    }
  }

  // The literals of a stream that one lane of its warp writes: the last one comes first.
  struct LiteralRun {
    const u8* literals;
    u32 count;
    bool is_end;  // of the stream
    BitSection section;
    u32 begin, end;  // bits of the section

    SIMT_DEVICE void share() const {
      section.share(begin);
      section.share(end);
    }
    SIMT_DEVICE void put(const HuffmanEncoder& huffman) const {
      if (begin == end) return;
      BitRun bits(section, begin);
      each_literal(
          literals,
          count,
          [&](u32 literal) {
            const u32 code = huffman.codes[literal];
            bits.put(code & 0xffff, huffman_bits(code));
          },
          [&](u32 first, u32 second) {
            const u32 a = huffman.codes[first], b = huffman.codes[second], n = huffman_bits(a);
            bits.put((a & 0xffff) | (b & 0xffff) << n, n + huffman_bits(b));
          });
      if (is_end) bits.put(1, 1);  // where the stream ends is where the decoder begins
      bits.finish();
    }
  };

  // From the last one down: one(literal), or two(literal, the one before it). Loads are by quads,
  // since what the lanes read is far apart and each load takes a sector of its own.
  template <class One, class Two>
  SIMT_DEVICE static void each_literal(const u8* begin, u32 count, const One& one, const Two& two) {
    const u8* end = begin + count;
    const auto quad_of = [](const u8* p) { return p - misalignment(p, 16); };
    simt::Quad next{};
    if (count > 0)
      next = simt::load_constant(reinterpret_cast<const simt::Quad*>(quad_of(end - 1)));
    while (end > begin) {
      const u8* const quad = quad_of(end - 1);
      const u32 words[4] = {next.w, next.z, next.y, next.x};
      if (quad > begin) next = simt::load_constant(reinterpret_cast<const simt::Quad*>(quad - 16));
      if (quad >= begin && quad + 16 == end) {
        SIMT_UNROLL
        for (const u32 word : words) {
          two(word >> 24, word >> 16 & 255);
          two(word >> 8 & 255, word & 255);
        }
        end = quad;
        continue;
      }
      while (end > begin && end > quad) one(*--end);
    }
  }

  SIMT_DEVICE static LiteralRun literal_run(const Shared& shared,
                                            const BlockStatistics& found,
                                            const u8* from,
                                            const Layout& layout,
                                            u8* out) {
    const u32 stream = simt::warp_index(), lane = simt::lane_index(), n = found.literals;
    const u32 share = stream_nbytes(n), begin = stream * share;
    if (layout.form == LiteralForm::raw || begin >= n) return {};
    u32 at = layout.streams + (n >= 256 ? 6 : 0);
    for (u32 i = 0; i < stream; ++i) at += shared.stream_nbytes[i];
    LiteralRun run{};
    run.section = {out + at, out + at + shared.stream_nbytes[stream]};
    const u32 in_stream = begin + share < n ? share : n - begin;
    const u32 each = (in_stream + simt::kWarp - 1) / simt::kWarp;
    const u32 first = lane * each < in_stream ? lane * each : in_stream;
    run.count = in_stream - first < each ? in_stream - first : each;
    run.literals = from + begin + in_stream - first - run.count;
    run.is_end = run.count > 0 && first + run.count == in_stream;
    u32 bits = run.is_end;
    const auto bits_of = [&](u32 literal) { return huffman_bits(shared.huffman.codes[literal]); };
    each_literal(
        run.literals,
        run.count,
        [&](u32 literal) { bits += bits_of(literal); },
        [&](u32 a, u32 b) { bits += bits_of(a) + bits_of(b); });
    run.end = run.section.first_bit() + simt::inclusive_sum(bits);
    run.begin = run.end - bits;
    return run;
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
