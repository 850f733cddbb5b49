#include "engine/layout/device_coding.h"

#include <algorithm>

#include "codec/registry.h"
#include "engine/layout/device_codecs.h"
#include "headrace/error.h"

namespace headrace {

ChosenImplementations parted(const Implementations& chosen) {
  ChosenImplementations parts;
  for (const auto& [codec, name] : chosen)
    (device_of_implementation(name) ? parts.on_device : parts.on_host)[codec] = name;
  return parts;
}

DeviceCoding make_device_coding(const CodecChain& chain,
                                std::span<const CodecSpec> codecs,
                                const ChosenImplementations& chosen) {
  DeviceCoding coding;
  coding.decode = make_device_plan(chain);
  for (DeviceStep& step : coding.decode.steps) {
    const auto choice = chosen.on_device.find(step.codec);
    if (choice != chosen.on_device.end() && only_decodes(choice->second))
      step.library = choice->second;
  }
  coding.forced = chosen.on_device;
  std::erase_if(coding.forced, [&](const auto& choice) {
    return std::ranges::none_of(codecs, [&](const CodecSpec& spec) {
      return canonical_codec_name(spec.name) == choice.first;
    });
  });
  for (const CodecSpec& spec : codecs) {
    const auto on_host = chosen.on_host.find(canonical_codec_name(spec.name));
    if (on_host == chosen.on_host.end()) continue;
    coding.decode.why_not =
        "codec " + spec.name + ": implementation " + on_host->second + " is asked for";
  }
  coding.encode = make_encode_plan(chain, coding.decode);
  return coding;
}

void check_forced(const DeviceCoding& coding, Device::Type type) {
  for (const auto& [codec, name] : coding.forced) {
    if (device_of_implementation(name) == type) continue;
    throw Error(ErrorCode::invalid_argument,
                "implementation " + name + " of codec " + codec +
                    " is for devices of that type only, the array is on another");
  }
}

}  // namespace headrace
