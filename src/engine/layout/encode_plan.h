#pragma once

// Who encodes, and how a device encodes the chunks of an array: filters and a compressor, then what
// is left to the host. Without a compressor it puts the elements together as they are stored.

#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "engine/layout/device_plan.h"

namespace headrace {

struct Kernels;  // kernels/kernels.h

// Whether a device encodes so many bytes that lie there when nobody says who does. `thorough`: see
// DeviceEncoding.
bool device_encodes(bool thorough,
                    std::size_t nbytes,
                    std::optional<std::size_t> device_min_decode_nbytes);
// Why no kernel encodes a buffer or chunk of so many bytes; empty when one does. Swaps and
// transposes are up to plans.
std::string missing_encoder(const std::optional<DeviceStage>& stage, std::size_t nbytes);
// What stands before the bytes that kernels give and is not theirs to write.
std::size_t prefix_nbytes(const DeviceStage& stage);

struct EncodePlan {
  std::vector<DeviceStep> filters;         // in the order of encoding
  std::optional<DeviceStep> compressor{};  // behind them
  std::size_t max_nbytes = 0;              // that the compressor gives
  std::size_t prefix_nbytes = 0;           // before it
  std::vector<const Codec*> behind;        // by the host: checksums mostly
  bool thorough = false;                   // the host makes smaller chunks: see DeviceEncoding
  std::string why_not;                     // when not empty, chunks are encoded on the host

  // Why `kernels` cannot run it; empty when they can.
  std::string missing(const Kernels& kernels) const;
};

// `chain` must outlive the plan. The elements come as `plan` lays them out: plan.strides and
// plan.swap_nbytes.
EncodePlan make_encode_plan(const CodecChain& chain, const DevicePlan& plan);

// The chunk as it is stored, in `encoded` or in `scratch`. `encoded` is what the kernels gave
// behind plan.prefix_nbytes bytes, which are filled here.
ConstBytes finish_encoding(const EncodePlan& plan, MutableBytes encoded, Buffer& scratch);

}  // namespace headrace
