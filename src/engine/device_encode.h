#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/encode_plan.h"
#include "kernels/kernels.h"

namespace headrace {

// The chunks of one batch on their way through the steps of a plan. Memory is the queue's.
class DeviceEncoder {
 public:
  // `chunks` hold `nbytes` bytes each, device memory padded as kernels want it.
  DeviceEncoder(Queue& queue,
                const Kernels& kernels,
                std::span<const std::uint8_t* const> chunks,
                std::size_t nbytes);

  // Gives all steps to the queue. nbytes[i], device memory, becomes the size of chunk i encoded; 0
  // where the encoder failed, which it does not.
  void run(const EncodePlan& plan, std::uint32_t zstd_block_nbytes, std::uint64_t* nbytes);
  // Where chunk i lies then, as long as this lives.
  const std::uint8_t* result(std::size_t i) const { return frames_[i].target; }

 private:
  Scratch<std::uint8_t> place_targets(std::size_t nbytes);
  void filter(const DeviceStep& step);
  void compress(const EncodePlan& plan, std::uint32_t zstd_block_nbytes, std::uint64_t* nbytes);

  Queue& queue_;
  const Kernels& kernels_;
  std::vector<Frame> frames_;
  Scratch<std::uint8_t> current_;  // what the last step gave
};

}  // namespace headrace
