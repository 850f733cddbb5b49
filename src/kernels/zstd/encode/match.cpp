#include "kernels/common/match.h"

#include "kernels/zstd/encode/stages.h"

namespace headrace::SIMT_SPACE::zstd {
namespace {

// An offset costs two bytes of its own: shorter matches gain nothing over coded literals.
constexpr u32 kShortestMatch = 6;
constexpr u32 kHashBits = 13;

struct FindSequences {
  static constexpr unsigned kThreads = simt::kWarp;
  using Shared = MatchFinder<kShortestMatch, kHashBits>;
  FrameJobs jobs;
  u32 block_nbytes;
  SequencePool pool;

  SIMT_DEVICE void operator()(Shared& finder) const {
    const u64 segment = simt::cta_index();
    const u32 per_block = pool.segments_per_block();
    const u64 block = segment / per_block;
    const BlockInput input = block_input(jobs.find(block), block, block_nbytes);
    const u32 begin = static_cast<u32>(segment % per_block) * kMatchSegment;
    const u32 left = input.nbytes > begin ? input.nbytes - begin : 0;
    const u32 nbytes = left < kMatchSegment ? left : kMatchSegment;
    finder.clear();

    u64* const sequences = pool.of_segment(segment);
    const u8* const source = input.source + begin;
    const u32 starts = nbytes < kShortestMatch ? 0 : nbytes - kShortestMatch + 1;
    u32 count = 0, repeat = 0;
    for (u32 at = 0; at < starts;) {
      const LzMatch match = finder.find(source, at, starts, nbytes, repeat);
      if (match.nbytes == 0) {
        at += simt::kWarp;
        continue;
      }
      if (simt::lane_index() == 0)
        sequences[count] = pack({begin + match.at, match.nbytes, match.offset});
      finder.insert(source, match, starts);
      ++count;
      repeat = match.offset;
      at = match.at + match.nbytes;
    }
    if (simt::lane_index() == 0) pool.counts[segment] = count;
  }
};

}  // namespace

void find_sequences(
    Queue& queue, const FrameJobs& jobs, u64 blocks, u32 block_nbytes, const EncodeStages& stages) {
  const SequencePool pool = pool_of(stages, block_nbytes);
  simt::launch(queue, blocks * pool.segments_per_block(), FindSequences{jobs, block_nbytes, pool});
}

}  // namespace headrace::SIMT_SPACE::zstd
