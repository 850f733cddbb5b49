#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "codec/device_stage.h"
#include "headrace/tensor.h"

namespace headrace {

// A codec that devices decode, with its kernel, and whether they encode it. An array's own chain
// may still ask for more than the kernels do; then the host does it.
struct DeviceCodec {
  std::string_view codec;
  DeviceStage::Kind kind;
  bool encodes = false;
};
std::span<const DeviceCodec> device_codecs();

// The name of nvCOMP's decoders, on CUDA devices, and the codecs that it has one for.
inline constexpr std::string_view kNvcomp = "nvcomp";
std::span<const std::string_view> nvcomp_codecs();

// "headrace-cuda", "headrace-simt".
std::string_view device_implementation(Device::Type type);
// The type of device that such a name means; nothing for implementations on the host.
std::optional<Device::Type> device_of_implementation(std::string_view name);

}  // namespace headrace
