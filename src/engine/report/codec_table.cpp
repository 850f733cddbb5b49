// The table of codecs: which implementations there are, and what each is used for.

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/thread_pool.h"
#include "codec/custom.h"
#include "codec/registry.h"
#include "device/backend.h"
#include "engine/device/decode_cost.h"
#include "engine/device/rates.h"
#include "engine/device/stages.h"
#include "engine/layout/device_codecs.h"
#include "engine/layout/encode_plan.h"
#include "engine/request/config.h"
#include "headrace/codec.h"
#include "kernels/tuning.h"

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
    if (!is_first(entry)) return kOnDemand;
    return on_devices(entry.codec) ? "on the CPU, and for less than a device's row says" : "always";
  }

  // Memory of the host is encoded there, whichever device is asked for.
  std::string of_host_encoder(const CodecEntry& entry) const {
    const auto asked = asked_.find(entry.codec);
    const bool host_is_asked = asked != asked_.end() && !device_of_implementation(asked->second);
    if (host_is_asked) return *asked_for(entry.codec, entry.implementation);
    if (!is_first(entry)) return kOnDemand;
    const DeviceCodec* shared = on_devices(entry.codec);
    return shared && shared->encodes ? "for memory of the host, and what devices leave" : "always";
  }

  // `rates`: of the device that the row is about.
  std::string of_device(std::string_view codec,
                        Kind kind,
                        std::string_view implementation,
                        const DecodeRates& rates) const {
    if (auto text = asked_for(codec, implementation)) return *text;
    if (is_placing(kind)) return kWhilePlacing;
    if (const auto limit = config_.device_min_decode_nbytes)
      return "from " + nbytes_text(*limit) + ", as configured";
    const auto alone = least_on_device(kind, 1, threads_, rates);
    const auto shared = least_on_device(kind, static_cast<std::size_t>(threads_), threads_, rates);
    if (!alone || !shared) return kOnDemand;
    return "from " + nbytes_text(*alone) + " in one chunk, " + nbytes_text(*shared) + " in " +
           std::to_string(threads_);
  }

  // For memory of the device.
  std::string of_device_encoder(std::string_view codec,
                                Kind kind,
                                std::string_view implementation) const {
    if (auto text = asked_for(codec, implementation)) return *text;
    if (is_placing(kind)) return kWhilePlacing;
    const std::size_t least = config_.device_min_decode_nbytes.value_or(kMinEncodeNbytes);
    return "for memory of the device from " + nbytes_text(least) + ", at fast levels";
  }

  std::string of_library(std::string_view codec, std::string_view library) const {
    return asked_for(codec, library).value_or(kOnDemand);
  }

 private:
  static constexpr const char* kOnDemand = "when asked for";
  static constexpr const char* kWhilePlacing = "while elements are placed";

  static bool is_placing(Kind kind) { return kind == Kind::swap || kind == Kind::transpose; }
  static bool is_first(const CodecEntry& entry) {
    const auto entries = codec_entries();
    const auto first = std::ranges::find(entries, entry.codec, &CodecEntry::codec);
    return first->implementation == entry.implementation;
  }
  // Null when no device decodes it.
  static const DeviceCodec* on_devices(std::string_view codec) {
    const auto codecs = device_codecs();
    const auto found = std::ranges::find(codecs, codec, &DeviceCodec::codec);
    return found == codecs.end() ? nullptr : &*found;
  }

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

const char* type_name(Device::Type type) { return type == Device::Type::cuda ? "cuda" : "simt"; }

// What headrace has itself, it does not ask the application for.
bool is_of_the_application(std::string_view codec) {
  const std::string_view name = canonical_codec_name(codec);
  const auto entries = codec_entries();
  const bool known = std::ranges::find(entries, name, &CodecEntry::codec) != entries.end();
  return !known && !is_refused_codec(name);
}

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
                     usage.of_host(entry),
                     entry.encodes,
                     entry.encodes ? usage.of_host_encoder(entry) : std::string()});
  }
  for (const Device::Type type : kDeviceTypes) {
    Backend& devices = backend(type);
    const std::string no_device = devices.why_none();
    const std::optional<int> usable = devices.first_usable();
    const DecodeRates rates =
        usable ? rates_in_force(devices, *usable, config()).rates : DecodeRates{};
    const std::string_view own = devices.own_name();
    for (const auto& [codec, kind, encodes] : device_codecs()) {
      std::string why_not = no_device;
      if (why_not.empty() && !has_kernel(devices.kernels(), kind)) why_not = "it has no kernel yet";
      table.push_back({std::string(codec),
                       std::string(own),
                       type_name(type),
                       why_not.empty(),
                       why_not,
                       usage.of_device(codec, kind, own, rates),
                       encodes,
                       encodes ? usage.of_device_encoder(codec, kind, own) : std::string()});
    }
  }
  for (const Device::Type type : kDeviceTypes) {
    const Backend& devices = backend(type);
    for (const DecoderLibrary& library : devices.libraries()) {
      std::string why_not = devices.why_none();
      if (why_not.empty()) why_not = library.why_not();
      for (const std::string_view codec : library.codecs)
        table.push_back({std::string(codec),
                         std::string(library.name),
                         type_name(type),
                         why_not.empty(),
                         why_not,
                         usage.of_library(codec, library.name),
                         false,
                         {}});
    }
  }
  for (auto& [codec, implementation] : custom_codecs()) {
    if (!is_of_the_application(codec)) continue;
    table.push_back({codec, implementation, "cpu", true, {}, "always", true, "always"});
  }
  return table;
}

}  // namespace headrace
