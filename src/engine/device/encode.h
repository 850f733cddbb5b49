#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/layout/encode_plan.h"
#include "kernels/kernels.h"

namespace headrace {

// Gives one stage to the queue: frames[i].source, padded as kernels want it, to frames[i].target,
// without the prefix_nbytes(stage) that belong before it. nbytes[frames[i].chunk], device memory,
// becomes the size of what a compressor gives, 0 where it failed; shuffles give as much as they
// take and leave it.
void encode_stage(Queue& queue,
                  const Kernels& kernels,
                  const DeviceStage& stage,
                  std::span<const Frame> frames,
                  std::uint32_t zstd_block_nbytes,
                  std::uint64_t* nbytes);

// The chunks of one batch on their way through the steps of a plan. Memory is the queue's.
class DeviceEncoder {
 public:
  // `chunks` hold `nbytes` bytes each, device memory padded as kernels want it.
  DeviceEncoder(Queue& queue,
                const Kernels& kernels,
                std::span<const std::uint8_t* const> chunks,
                std::size_t nbytes);

  // Gives all steps of a plan with a compressor to the queue. nbytes[i], device memory, becomes the
  // size of chunk i encoded, less its prefix; 0 where the encoder failed, which it does not.
  void run(const EncodePlan& plan, std::uint32_t zstd_block_nbytes, std::uint64_t* nbytes);
  // Where chunk i lies then, as long as this lives.
  const std::uint8_t* result(std::size_t i) const { return frames_[i].target; }

 private:
  Scratch<std::uint8_t> place_targets(std::size_t nbytes);

  Queue& queue_;
  const Kernels& kernels_;
  std::vector<Frame> frames_;
  Scratch<std::uint8_t> current_;  // what the last step gave
};

}  // namespace headrace
