#pragma once

// The stages of decoding a plan, in order. Each gives its kernels to the queue.

#include "kernels/zstd/plan.h"

namespace headrace::SIMT_SPACE::zstd {

// Device memory that the stages hand on.
struct Stages {
  Stages(Queue& queue, const Plan& plan);

  Scratch<Record> records;
  Scratch<u8> literals;
  Scratch<BlockResult> results;
  Scratch<PlacedBlock> placed;
};

// Literals and sequences of all blocks at once.
void decode_entropy(Queue& queue, const Plan& plan, const Stages& stages, u32* faults);
// Where each block comes to lie, and its repeat offsets. After this, sources without a fault are
// known to be sound and later kernels check nothing but that.
void place_blocks(Queue& queue, const Plan& plan, const Stages& stages, u32* faults);
void execute(Queue& queue, const Plan& plan, const Stages& stages, const u32* faults);
void verify_checksums(Queue& queue, const Plan& plan, const Stages& stages, u32* faults);

}  // namespace headrace::SIMT_SPACE::zstd
