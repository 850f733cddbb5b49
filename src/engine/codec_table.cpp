// The table of codecs: which implementations there are, and what each is used for.

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/thread_pool.h"
#include "codec/registry.h"
#include "device/backend.h"
#include "engine/config.h"
#include "engine/decode_cost.h"
#include "engine/device_codecs.h"
#include "engine/device_stages.h"
#include "headrace/codec.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

// "1.2 MiB"
std::string nbytes_text(std::size_t nbytes) {
  const bool large = nbytes >= std::size_t{1} << 20;
  const double value = static_cast<double>(nbytes) / (large ? 1 << 20 : 1 << 10);
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s", value < 10 ? 1 : 0, value, large ? "MiB" : "KiB");
  return text;
}

// What the rows of the table are used for.
class Usage {
 public:
  std::string of_host(const CodecEntry& entry) const {
    if (auto text = asked_for(entry.codec, entry.implementation)) return *text;
    const auto entries = codec_entries();
    const auto first = std::ranges::find(entries, entry.codec, &CodecEntry::codec);
    if (first->implementation != entry.implementation) return kOnDemand;
    const bool shared = std::ranges::find(device_codecs(), entry.codec, &DeviceCodec::codec) !=
                        device_codecs().end();
    return shared ? "on the CPU, and for less than a device's row says" : "always";
  }

  std::string of_device(std::string_view codec, Kind kind, std::string_view implementation) const {
    if (auto text = asked_for(codec, implementation)) return *text;
    if (kind == Kind::swap || kind == Kind::transpose) return "while elements are placed";
    if (const auto limit = config_.device_min_decode_nbytes)
      return "from " + nbytes_text(*limit) + ", as configured";
    const auto alone = least_on_device(kind, 1, threads_);
    const auto shared = least_on_device(kind, static_cast<std::size_t>(threads_), threads_);
    if (!alone || !shared) return kOnDemand;
    return "from " + nbytes_text(*alone) + " in one chunk, " + nbytes_text(*shared) + " in " +
           std::to_string(threads_);
  }

  std::string of_nvcomp(std::string_view codec) const {
    return asked_for(codec, kNvcomp).value_or(kOnDemand);
  }

 private:
  static constexpr const char* kOnDemand = "when asked for";

  // What the configuration says of it.
  std::optional<std::string> asked_for(std::string_view codec,
                                       std::string_view implementation) const {
    const auto asked = asked_.find(codec);
    if (asked == asked_.end()) return std::nullopt;
    return asked->second == implementation ? "always, as configured" : kOnDemand;
  }

  const Config config_ = config();
  const Implementations asked_ = merged_implementations({}, {});
  const int threads_ = thread_count();
};

}  // namespace

std::vector<CodecInfo> codec_table() {
  const Usage usage;
  std::vector<CodecInfo> table;
  for (const CodecEntry& entry : codec_entries()) {
    table.push_back({std::string(entry.codec),
                     std::string(entry.implementation),
                     std::string(entry.device),
                     true,
                     {},
                     usage.of_host(entry)});
  }
  for (const Device device : {Device::cuda(), Device::simt()}) {
    Backend& devices = backend(device.type);
    const std::string no_device = devices.why_not(0);
    for (const auto& [codec, kind] : device_codecs()) {
      std::string why_not = no_device;
      if (why_not.empty() && !has_kernel(devices.kernels(), kind)) why_not = "it has no kernel yet";
      table.push_back({std::string(codec),
                       std::string(device_implementation(device.type)),
                       device.type == Device::Type::cuda ? "cuda" : "simt",
                       why_not.empty(),
                       why_not,
                       usage.of_device(codec, kind, device_implementation(device.type))});
    }
  }
  const Backend& cuda = backend(Device::Type::cuda);
  const std::string no_nvcomp = cuda.why_not(0).empty() ? cuda.nvcomp_why_not() : cuda.why_not(0);
  for (const std::string_view codec : nvcomp_codecs())
    table.push_back({std::string(codec),
                     std::string(kNvcomp),
                     "cuda",
                     no_nvcomp.empty(),
                     no_nvcomp,
                     usage.of_nvcomp(codec)});
  return table;
}

}  // namespace headrace
