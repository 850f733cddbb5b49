#include "kernels/common/match.h"

#include "kernels/zstd/encode/stages.h"

namespace headrace::SIMT_SPACE::zstd {
namespace {

// An offset costs two bytes of its own: shorter matches gain nothing over coded literals.
constexpr u32 kShortestMatch = 6;
// For 20 segments a multiprocessor of 227 KiB. Of 8,192 there are 13, which take 8 % longer for
// frames that are 2 % smaller (packed float32; others are as large).
constexpr u32 kSlots = 5120;

struct FindSequences {
  static constexpr unsigned kThreads = simt::kWarp;
  using Shared = MatchFinder<kShortestMatch, kSlots, true>;
  static_assert(Shared::kMinRepeat >= kMinEncodedMatch);
  FrameJobs jobs;
  SequencePool pool;

  SIMT_DEVICE void operator()(Shared& finder) const {
    const u64 segment = simt::cta_index();
    const u32 per_block = pool.segments_per_block();
    const u64 block = segment / per_block;
    const BlockInput input = block_input(jobs.find(block), block, pool.block_nbytes);
    const u32 begin = static_cast<u32>(segment % per_block) * pool.segment_nbytes;
    const u32 left = input.nbytes > begin ? input.nbytes - begin : 0;
    const u32 nbytes = left < pool.segment_nbytes ? left : pool.segment_nbytes;
    const u32 lane = simt::lane_index();
    u32 count = 0;
    if (nbytes >= kShortestMatch) {
      const u32 history = history_nbytes(begin, pool.segment_nbytes), end = history + nbytes;
      // A literal first: split.cpp needs it.
      const LzSegment bytes{
          input.source + begin - history, history ? history + 1 : 0, end - kShortestMatch + 1, end};
      u64* const sequences = pool.of_segment(segment);
      finder.each_window(bytes, [&](const LzMatches& found) {
        if (found.chosen >> lane & 1)
          sequences[count + simt::popcount(found.chosen & lanes_below(lane))] =
              pack(Triple{begin + found.position - history, found.nbytes, found.offset});
        count += simt::popcount(found.chosen);
      });
    }
    if (lane == 0) pool.counts[segment] = count;
  }
};

}  // namespace

u64 sequences_at_once(const Queue& queue) { return segments_at_once<FindSequences::Shared>(queue); }

void find_sequences(Queue& queue, const FrameJobs& jobs, u64 blocks, const EncodeStages& stages) {
  const SequencePool pool = pool_of(stages);
  simt::launch(queue, blocks * pool.segments_per_block(), FindSequences{jobs, pool});
}

}  // namespace headrace::SIMT_SPACE::zstd
