#include "kernels/common/access.h"
#include "kernels/zstd/encode/stages.h"

namespace headrace::SIMT_SPACE::zstd {
namespace {

constexpr u32 kPass = 256;  // sequences that a CTA takes at a time
constexpr u32 kMostSegments = kMaxEncodedBlock / kShortestSegment;  // of a block

// The last three different offsets, the latest first; 0 for those of blocks before, which nobody
// knows here: the decoder has them in the same places.
//
// A match puts its own in front of the others, so what a row of matches does to the three is
// itself a list of three, and lists compose: a scan gives each match those before it. It holds as
// long as no match has the offset of the one before it and no literals in between. Such a match
// would be the end of the one before it, which went on as far as it could, but for the segment's
// end, and no segment starts with a match.
struct LastOffsets {
  u32 last[3];

  // The number that the format has for an offset behind these.
  SIMT_DEVICE u32 value_of(u32 offset, u32 literals) const {
    const u32 place = offset == last[0] ? 0 : offset == last[1] ? 1 : offset == last[2] ? 2 : 3;
    return place == 3 ? offset + 3 : place + (literals ? 1 : 0);
  }
};
SIMT_DEVICE LastOffsets compose(const LastOffsets& before, const LastOffsets& after) {
  LastOffsets both = after;
  for (const u32 offset : before.last) {
    if (offset == both.last[0] || offset == both.last[1] || offset == both.last[2]) continue;
    if (both.last[0] == 0)
      both.last[0] = offset;
    else if (both.last[1] == 0)
      both.last[1] = offset;
    else if (both.last[2] == 0)
      both.last[2] = offset;
  }
  return both;
}
SIMT_DEVICE LastOffsets shuffle_up(const LastOffsets& offsets, u32 delta) {
  return {{simt::shuffle_up(offsets.last[0], delta),
           simt::shuffle_up(offsets.last[1], delta),
           simt::shuffle_up(offsets.last[2], delta)}};
}

struct SplitBlock {
  static constexpr unsigned kThreads = kPass, kWarps = kThreads / simt::kWarp;
  struct Shared {
    BlockStatistics statistics;
    u32 first[kMostSegments + 1];  // sequence of each segment; behind the last, their number
    // Of the sequences of a pass.
    u32 ends[kPass];        // of matches, in the block
    u32 run_at[kPass];      // where literals begin, among all
    u32 run_source[kPass];  // and in the block
    u32 run_nbytes[kPass];
    u32 sums[kWarps];             // of literals, of a warp
    LastOffsets offsets[kWarps];  // and what its matches leave
  };
  FrameJobs jobs;
  SequencePool pool;
  u8* literals;
  BlockStatistics* statistics;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const u64 block = simt::cta_index();
    const BlockInput input = block_input(jobs.find(block), block, pool.block_nbytes);
    const u32 thread = simt::thread_index();
    u32* const counts = reinterpret_cast<u32*>(&shared.statistics);
    for (u32 i = thread; i < sizeof(BlockStatistics) / sizeof(u32); i += kThreads) counts[i] = 0;
    if (simt::warp_index() == 0) find_segments(shared, block);
    simt::sync_cta();
    const u32 n = shared.first[pool.segments_per_block()];

    u8* const out = literals + block * pool.block_nbytes;
    Progress progress{};
    // What is behind the last match is one more run.
    for (u32 first = 0; n > 0 && first <= n; first += kPass)
      take_pass(shared, block, input, first, n, out, progress);
    const u32 n_literals = n ? progress.literals : input.nbytes;
    count_literals(shared.statistics, n ? out : input.source, n_literals);
    if (thread == 0) {
      shared.statistics.literals = n_literals;
      shared.statistics.sequences = n;
    }
    simt::sync_cta();
    u32* const to = reinterpret_cast<u32*>(statistics + block);
    for (u32 i = thread; i < sizeof(BlockStatistics) / sizeof(u32); i += kThreads)
      to[i] = counts[i];
  }

 private:
  struct Progress {
    u32 literals, end;  // that were taken, of the last match
    LastOffsets offsets;
  };

  SIMT_DEVICE void find_segments(Shared& shared, u64 block) const {
    const u32 segments = pool.segments_per_block(), lane = simt::lane_index();
    u32 before = 0;
    for (u32 begin = 0; begin < segments; begin += simt::kWarp) {
      const u32 s = begin + lane;
      const u32 count = s < segments ? pool.counts[block * segments + s] : 0;
      const u32 through = before + simt::inclusive_sum(count);
      if (s < segments) shared.first[s + 1] = through;
      before = simt::shuffle(through, simt::kWarp - 1);
    }
    if (lane == 0) shared.first[0] = 0;
  }
  // Sequence i of a block as matches are found.
  SIMT_DEVICE u64 found(const Shared& shared, u64 block, u32 i) const {
    u32 segment = 0;
    while (i >= shared.first[segment + 1]) ++segment;
    return pool.of_segment(block * pool.segments_per_block() + segment)[i - shared.first[segment]];
  }

  SIMT_DEVICE void take_pass(Shared& shared,
                             u64 block,
                             const BlockInput& input,
                             u32 first,
                             u32 n,
                             u8* out,
                             Progress& progress) const {
    const u32 thread = simt::thread_index(), i = first + thread;
    const Triple match = i < n ? unpack(found(shared, block, i)) : Triple{input.nbytes, 0, 0};
    const LastOffsets in_warp = scan_offsets(shared, match.c);
    shared.ends[thread] = match.a + match.b;
    simt::sync_cta();
    const u32 before = thread ? shared.ends[thread - 1] : progress.end;
    const u32 n_literals = match.a - before;
    const u32 through = inclusive_block_sum(shared, n_literals);
    shared.run_at[thread] = progress.literals + through - n_literals;
    shared.run_source[thread] = before;
    shared.run_nbytes[thread] = n_literals;
    const LastOffsets known = take_offsets(shared, in_warp, progress.offsets);
    progress.end = shared.ends[kPass - 1];
    simt::sync_cta();
    u32 end = progress.literals;
    for (const u32 sum : shared.sums) end += sum;
    copy_literals(shared, input.source, out, progress.literals, end);
    progress.literals = end;
    simt::sync_cta();
    if (i >= n) return;
    const u32 value = known.value_of(match.c, n_literals);
    const SequenceCodes codes = codes_of(n_literals, match.b, value);
    for (u32 t = 0; t < 3; ++t)
      simt::atomic_add(&shared.statistics.code_counts[t][codes.code[t]], 1u);
    pool.of_block(block)[i] = pack(Sequence{
        n_literals, match.b, value, codes.code[kLiteralLengths], codes.code[kMatchLengths]});
  }

  SIMT_DEVICE static u32 inclusive_block_sum(Shared& shared, u32 value) {
    u32 sum = simt::inclusive_sum(value);
    if (simt::lane_index() == simt::kWarp - 1) shared.sums[simt::warp_index()] = sum;
    simt::sync_cta();
    for (u32 w = 0; w < simt::warp_index(); ++w) sum += shared.sums[w];
    return sum;
  }

  // What the matches of the lanes before leave. An offset of 0 is none.
  SIMT_DEVICE static LastOffsets scan_offsets(Shared& shared, u32 offset) {
    const u32 lane = simt::lane_index();
    LastOffsets through{{offset, 0, 0}};
    for (u32 d = 1; d < simt::kWarp; d <<= 1) {
      const LastOffsets before = shuffle_up(through, d);
      if (lane >= d) through = compose(before, through);
    }
    if (lane == simt::kWarp - 1) shared.offsets[simt::warp_index()] = through;
    const LastOffsets before = shuffle_up(through, 1);
    return lane ? before : LastOffsets{};
  }

  // Behind a sync: what the thread's match finds, and in `all` what those of the pass leave.
  SIMT_DEVICE static LastOffsets take_offsets(const Shared& shared,
                                              const LastOffsets& in_warp,
                                              LastOffsets& all) {
    LastOffsets found{};
    for (u32 w = 0; w < kWarps; ++w) {
      if (w == simt::warp_index()) found = compose(all, in_warp);
      all = compose(all, shared.offsets[w]);
    }
    return found;
  }

  // Literals [begin, end) of the block, those of the pass. A thread copies 8 at a time, all of
  // which are on their way before one is stored.
  SIMT_DEVICE static void copy_literals(
      const Shared& shared, const u8* source, u8* out, u32 begin, u32 end) {
    constexpr u32 kEach = 8;
    const u32 skip = misalignment(out + begin, kEach);
    for (u32 at = simt::thread_index() * kEach; at < end - begin + skip; at += kThreads * kEach) {
      const u32 first = at < skip ? begin : begin - skip + at;
      const u32 last = begin - skip + at + kEach < end ? begin - skip + at + kEach : end;
      u32 run = 0;
      for (u32 half = kPass / 2; half; half /= 2)
        if (shared.run_at[run + half] <= first) run += half;
      u8 bytes[kEach] = {};
      SIMT_UNROLL
      for (u32 k = 0; k < kEach; ++k) {
        if (first + k >= last) continue;
        while (first + k - shared.run_at[run] >= shared.run_nbytes[run]) ++run;
        bytes[k] =
            simt::load_constant(source + shared.run_source[run] + (first + k - shared.run_at[run]));
      }
      if (last - first == kEach) {
        const auto word = [&](u32 i) {
          return bytes[i] | u32{bytes[i + 1]} << 8 | u32{bytes[i + 2]} << 16 |
                 u32{bytes[i + 3]} << 24;
        };
        *reinterpret_cast<simt::Pair*>(out + first) = {word(0), word(4)};
        continue;
      }
      SIMT_UNROLL
      for (u32 k = 0; k < kEach; ++k)
        if (first + k < last) out[first + k] = bytes[k];
    }
  }

  // By as many warps for each stream. What the CTA copied is read, so by plain loads.
  SIMT_DEVICE static void count_literals(BlockStatistics& found, const u8* bytes, u32 n) {
    const u32 stream = simt::warp_index() % kStreams;
    const u32 thread = simt::warp_index() / kStreams * simt::kWarp + simt::lane_index();
    const u32 share = stream_nbytes(n), first = share * stream;
    if (first >= n) return;
    u32* const counts = found.literal_counts[stream];
    const u8* const begin = bytes + first;
    const u8* const end = bytes + (first + share < n ? first + share : n);
    const u32 skip = misalignment(begin, 4), to_word = skip ? 4 - skip : 0;
    const u32 head = to_word < end - begin ? to_word : static_cast<u32>(end - begin);
    const u32 words = static_cast<u32>(end - begin - head) / 4;
    for (u32 i = thread; i < words; i += kThreads / kStreams) {
      const u32 word = reinterpret_cast<const u32*>(begin + head)[i];
      for (u32 k = 0; k < 4; ++k) simt::atomic_add(&counts[word >> 8 * k & 255], 1u);
    }
    if (thread < head) simt::atomic_add(&counts[begin[thread]], 1u);
    const u8* const tail = begin + head + 4 * words + thread;
    if (tail < end) simt::atomic_add(&counts[*tail], 1u);
  }
};
static_assert(SplitBlock::kThreads % (kStreams * simt::kWarp) == 0);

}  // namespace

void split_blocks(Queue& queue, const FrameJobs& jobs, u64 blocks, const EncodeStages& stages) {
  simt::launch(queue,
               blocks,
               SplitBlock{jobs, pool_of(stages), stages.literals.data(), stages.statistics.data()});
}

}  // namespace headrace::SIMT_SPACE::zstd
