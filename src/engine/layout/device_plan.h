#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codec/chain.h"

namespace headrace {

struct DeviceStep {
  DeviceStage stage;
  std::string codec;  // its name, for messages
  // After this step; behind a checksum 4 less than before. Else `said_by` tells, of what it is
  // given.
  std::optional<std::size_t> nbytes{};
  const Codec* said_by = nullptr;
  std::size_t source_nbytes = 0;  // before it, when that is fixed
  Shape shape{};                  // transpose: of the chunk
  std::string library{};          // of the backend, when it is to decode it
  bool gives_planes = false;      // of bytes or bits, which the next step makes elements of
};

// How a device decodes the chunks of an array. Swaps and transposes that come last cost nothing:
// they are part of placing the elements.
struct DevicePlan {
  std::vector<DeviceStep> steps;  // in the order of decoding
  Shape strides;                  // bytes, of what the last step gives, by dimension of the chunk
  bool c_order = true;            // those of C order
  std::uint32_t swap_nbytes = 0;  // of the units to reverse while placing; 0: none
  std::string why_not;            // when not empty, chunks are decoded on the host

  // Whether what comes out are elements of variable length, which point into what the step before
  // gives.
  bool is_ragged() const {
    return !steps.empty() && steps.back().stage.kind == DeviceStage::Kind::ragged;
  }
};

DevicePlan make_device_plan(const CodecChain& chain);

}  // namespace headrace
