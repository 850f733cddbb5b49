#pragma once

// How a device encodes the chunks of an array: filters and a compressor, then what is left to the
// host.

#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "engine/device_plan.h"

namespace headrace {

struct Kernels;  // kernels/kernels.h

struct EncodePlan {
  std::vector<DeviceStep> filters;   // in the order of encoding
  DeviceStep compressor;             // behind them
  std::size_t max_nbytes = 0;        // that the compressor gives
  std::vector<const Codec*> behind;  // by the host: checksums mostly
  bool thorough = false;             // the host makes smaller chunks: see DeviceEncoding
  std::string why_not;               // when not empty, chunks are encoded on the host

  // What stands before the kernels' bytes and is not theirs to write.
  std::size_t prefix_nbytes() const;
  // Why `kernels` cannot run it; empty when they can.
  std::string missing(const Kernels& kernels) const;
};

// `chain` must outlive the plan. The elements come as `plan` lays them out: plan.strides and
// plan.swap_nbytes.
EncodePlan make_encode_plan(const CodecChain& chain, const DevicePlan& plan);

// The chunk as it is stored, in `encoded` or in `scratch`. `encoded` is what the kernels gave
// behind plan.prefix_nbytes() bytes, which are filled here.
ConstBytes finish_encoding(const EncodePlan& plan, MutableBytes encoded, Buffer& scratch);

}  // namespace headrace
