#include <algorithm>

#include "kernels/tuning.h"
#include "kernels/zstd/literals.h"
#include "kernels/zstd/sequences.h"
#include "kernels/zstd/stages.h"

namespace headrace::SIMT_SPACE::zstd {
namespace {

// Sequences and literals side by side. Sequences come first in the grid, as the longer chains;
// behind literals they would also share fewer multiprocessors.
template <class Sequences>
struct DecodeEntropy {
  static constexpr unsigned kThreads = std::max(Sequences::kThreads, LiteralDecoder::kThreads);
  static constexpr unsigned kMinCtas = LiteralDecoder::kMinCtas;
  union Shared {
    typename Sequences::Shared sequences;
    LiteralDecoder::Shared literals;
  };
  SequenceWork sequences;
  LiteralWork literals;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const u32 block = simt::cta_index(), sequence_blocks = Sequences::groups(sequences.count);
    if (block < sequence_blocks)
      Sequences::run(sequences, block, shared.sequences);
    else
      LiteralDecoder::run(literals, block - sequence_blocks, shared.literals);
  }
};

template <class Sequences>
struct DecodeSequences {
  static constexpr unsigned kThreads = Sequences::kThreads;
  using Shared = typename Sequences::Shared;
  SequenceWork work;

  SIMT_DEVICE void operator()(Shared& shared) const {
    Sequences::run(work, simt::cta_index(), shared);
  }
};

struct DecodeLiterals {
  static constexpr unsigned kThreads = LiteralDecoder::kThreads;
  static constexpr unsigned kMinCtas = LiteralDecoder::kMinCtas;
  using Shared = LiteralDecoder::Shared;
  LiteralWork work;

  SIMT_DEVICE void operator()(Shared& shared) const {
    LiteralDecoder::run(work, simt::cta_index(), shared);
  }
};

template <class Sequences>
void launch(Queue& queue, const SequenceWork& sequences, const LiteralWork& literals) {
  simt::launch(queue,
               std::size_t{Sequences::groups(sequences.count)} + literals.count,
               DecodeEntropy<Sequences>{sequences, literals});
}

// One after the other, each with the shared memory that it needs.
template <class Sequences>
void launch_apart(Queue& queue, const SequenceWork& sequences, const LiteralWork& literals) {
  simt::launch(queue, Sequences::groups(sequences.count), DecodeSequences<Sequences>{sequences});
  simt::launch(queue, literals.count, DecodeLiterals{literals});
}

}  // namespace

void decode_entropy(Queue& queue, const Plan& plan, const Stages& stages, u32* faults) {
  const SequenceWork sequences{plan.device_sources,
                               plan.blocks,
                               plan.with_sequences,
                               plan.total.with_sequences,
                               stages.records.data(),
                               stages.results.data(),
                               faults};
  const LiteralWork literals{plan.device_sources,
                             plan.blocks,
                             plan.with_pool_literals,
                             plan.total.with_pool_literals,
                             stages.literals.data(),
                             faults};
  const u32 blocks = std::max(sequences.count, literals.count);
  const Tuning::Zstd tuning = tuning_of(queue).zstd;
  if (blocks <= tuning.few_blocks)
    launch<SequenceDecoder<WideEntries, 1>>(queue, sequences, literals);
  else if (blocks <= tuning.some_blocks)
    launch<SequenceDecoder<WideEntries, 2>>(queue, sequences, literals);
  else
    launch_apart<SequenceDecoder<NarrowEntries, 4>>(queue, sequences, literals);
}

}  // namespace headrace::SIMT_SPACE::zstd
