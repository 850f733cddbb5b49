#pragma once

#include <span>

#include "codec/chain.h"
#include "engine/layout/device_plan.h"
#include "engine/layout/encode_plan.h"
#include "headrace/codec.h"
#include "headrace/tensor.h"

namespace headrace {

// What devices can do for the chunks of an array, and what of it is asked for.
struct DeviceCoding {
  DevicePlan decode;
  EncodePlan encode;
  // Codecs of the chain that a type of device is to run: "headrace-cuda", ... Nobody else may then.
  Implementations forced;

  bool is_forced() const { return !forced.empty(); }
};

// Who is asked for, apart: `on_host` are implementations of the host's.
struct ChosenImplementations {
  Implementations on_host;
  Implementations on_device;
};
ChosenImplementations parted(const Implementations& chosen);

// `chain` was made of `codecs`, and must outlive it.
DeviceCoding make_device_coding(const CodecChain& chain,
                                std::span<const CodecSpec> codecs,
                                const ChosenImplementations& chosen);

// invalid_argument when a read to this type of device, or a write from it, goes against what is
// forced.
void check_forced(const DeviceCoding& coding, Device::Type type);

}  // namespace headrace
