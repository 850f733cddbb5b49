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

// The type of device that an implementation is for, by the name of a backend's own kernels or of a
// library that it offers; nothing for implementations on the host.
std::optional<Device::Type> device_of_implementation(std::string_view name);
// Whether it is a library's, which only decodes.
bool only_decodes(std::string_view implementation);

}  // namespace headrace
