#include "kernels/zstd/encode/stages.h"

namespace headrace::SIMT_SPACE::zstd {
namespace {

constexpr u32 kPass = 128;  // sequences that a CTA takes at a time

// The last three offsets of a block; 0 for those of blocks before, which nobody knows here: the
// decoder has them in the same places.
class RepeatedOffsets {
 public:
  SIMT_DEVICE u32 value_of(u32 offset, u32 literals) {
    u32 place = offset == last_[0] ? 0 : offset == last_[1] ? 1 : offset == last_[2] ? 2 : 3;
    // Without literals before it, the last offset again has no short value.
    if (literals == 0 && place == 0) place = 3;
    if (place > 1) last_[2] = last_[1];
    if (place > 0) last_[1] = last_[0];
    last_[0] = offset;
    return place == 3 ? offset + 3 : place + (literals ? 1 : 0);
  }

 private:
  u32 last_[3] = {};
};

struct SplitBlock {
  static constexpr unsigned kThreads = kPass;
  struct Shared {
    BlockStatistics statistics;
    // Of the sequences of a pass.
    u32 ends[kPass];        // of matches, in the block
    u32 run_at[kPass];      // where literals begin, among all
    u32 run_source[kPass];  // and in the block
    u32 run_nbytes[kPass];
    u32 offsets[kPass];  // then their values
    u32 sums[kThreads / simt::kWarp];
  };
  FrameJobs jobs;
  u32 block_nbytes;
  SequencePool pool;
  u8* literals;
  BlockStatistics* statistics;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const u64 block = simt::cta_index();
    const BlockInput input = block_input(jobs.find(block), block, block_nbytes);
    const u32 thread = simt::thread_index(), n = pool.count(block);
    u32* const counts = reinterpret_cast<u32*>(&shared.statistics);
    for (u32 i = thread; i < sizeof(BlockStatistics) / sizeof(u32); i += kThreads) counts[i] = 0;
    simt::sync_cta();

    u8* const out = literals + block * block_nbytes;
    RepeatedOffsets repeats;
    Progress progress{};
    // What is behind the last match is one more run.
    for (u32 first = 0; n > 0 && first <= n; first += kPass)
      take_pass(shared, block, input, first, n, out, progress, repeats);
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
  };

  SIMT_DEVICE void take_pass(Shared& shared,
                             u64 block,
                             const BlockInput& input,
                             u32 first,
                             u32 n,
                             u8* out,
                             Progress& progress,
                             RepeatedOffsets& repeats) const {
    const u32 thread = simt::thread_index(), i = first + thread;
    u64* const place = i < n ? pool.of_block(block, i) : nullptr;
    const Triple match = place ? unpack(*place) : Triple{input.nbytes, 0, 0};
    shared.ends[thread] = match.a + match.b;
    simt::sync_cta();
    const u32 before = thread ? shared.ends[thread - 1] : progress.end;
    const u32 n_literals = match.a - before;
    const u32 through = inclusive_block_sum(shared, n_literals);
    shared.run_at[thread] = progress.literals + through - n_literals;
    shared.run_source[thread] = before;
    shared.run_nbytes[thread] = n_literals;
    shared.offsets[thread] = match.c;
    progress.end = shared.ends[kPass - 1];
    simt::sync_cta();
    u32 end = progress.literals;
    for (const u32 sum : shared.sums) end += sum;
    if (simt::warp_index() > 0) {
      copy_literals(shared, input.source, out, progress.literals, end);
    } else if (thread == 0) {
      for (u32 k = 0; k < kPass && first + k < n; ++k)
        shared.offsets[k] = repeats.value_of(shared.offsets[k], shared.run_nbytes[k]);
    }
    progress.literals = end;
    simt::sync_cta();
    if (!place) return;
    const u32 value = shared.offsets[thread];
    const SequenceCodes codes = codes_of(n_literals, match.b, value);
    for (u32 t = 0; t < 3; ++t)
      simt::atomic_add(&shared.statistics.code_counts[t][codes.code[t]], 1u);
    *place = pack({n_literals, match.b, value});
  }

  SIMT_DEVICE static u32 inclusive_block_sum(Shared& shared, u32 value) {
    u32 sum = simt::inclusive_sum(value);
    if (simt::lane_index() == simt::kWarp - 1) shared.sums[simt::warp_index()] = sum;
    simt::sync_cta();
    for (u32 w = 0; w < simt::warp_index(); ++w) sum += shared.sums[w];
    return sum;
  }

  // By all warps but the first: literals [begin, end) of the block, those of the pass.
  SIMT_DEVICE static void copy_literals(
      const Shared& shared, const u8* source, u8* out, u32 begin, u32 end) {
    constexpr u32 kEach = 4, kCopiers = kThreads - simt::kWarp;
    for (u32 at = begin + (simt::thread_index() - simt::kWarp) * kEach; at < end;
         at += kCopiers * kEach) {
      u32 run = 0;
      for (u32 half = kPass / 2; half; half /= 2)
        if (shared.run_at[run + half] <= at) run += half;
      for (u32 k = at; k < at + kEach && k < end; ++k) {
        while (k - shared.run_at[run] >= shared.run_nbytes[run]) ++run;
        out[k] = source[shared.run_source[run] + (k - shared.run_at[run])];
      }
    }
  }

  // A warp a stream.
  SIMT_DEVICE static void count_literals(BlockStatistics& found, const u8* bytes, u32 n) {
    const u32 stream = simt::warp_index();
    const u32 share = stream_nbytes(n), begin = share * stream;
    const u32 end = begin + share < n ? begin + share : n;
    for (u32 i = begin + simt::lane_index(); i < end; i += simt::kWarp)
      simt::atomic_add(&found.literal_counts[stream][bytes[i]], 1u);
  }
};
static_assert(SplitBlock::kThreads == kStreams * simt::kWarp);

}  // namespace

void split_blocks(
    Queue& queue, const FrameJobs& jobs, u64 blocks, u32 block_nbytes, const EncodeStages& stages) {
  simt::launch(queue,
               blocks,
               SplitBlock{jobs,
                          block_nbytes,
                          pool_of(stages, block_nbytes),
                          stages.literals.data(),
                          stages.statistics.data()});
}

}  // namespace headrace::SIMT_SPACE::zstd
