#include "engine/device_codecs.h"

#include "codec/registry.h"
#include "device/backend.h"
#include "engine/device_stages.h"
#include "headrace/codec.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

constexpr DeviceCodec kDeviceCodecs[] = {
    {"bytes", Kind::swap},
    {"transpose", Kind::transpose},
    {"zstd", Kind::zstd},
    {"blosc", Kind::blosc},
    {"gzip", Kind::gzip},
    {"zlib", Kind::zlib},
    {"lz4", Kind::lz4},
    {"crc32c", Kind::crc32c},
    {"crc32", Kind::crc32},
    {"adler32", Kind::adler32},
    {"fletcher32", Kind::fletcher32},
    {"shuffle", Kind::unshuffle},
    {"bitshuffle", Kind::bit_unshuffle},
    {"delta", Kind::delta},
    {"fixedscaleoffset", Kind::fixed_scale_offset},
    {"quantize", Kind::cast},
    {"astype", Kind::cast},
    {"packbits", Kind::packbits},
};

constexpr std::string_view kCuda = "headrace-cuda";
constexpr std::string_view kSimt = "headrace-simt";

}  // namespace

std::span<const DeviceCodec> device_codecs() { return kDeviceCodecs; }

std::string_view device_implementation(Device::Type type) {
  return type == Device::Type::simt ? kSimt : kCuda;
}

std::optional<Device::Type> device_of_implementation(std::string_view name) {
  if (name == kCuda) return Device::Type::cuda;
  if (name == kSimt) return Device::Type::simt;
  return std::nullopt;
}

std::vector<CodecInfo> codec_table() {
  std::vector<CodecInfo> table;
  for (const CodecEntry& entry : codec_entries()) {
    table.push_back({std::string(entry.codec),
                     std::string(entry.implementation),
                     std::string(entry.device),
                     true,
                     {}});
  }
  for (const Device device : {Device::cuda(), Device::simt()}) {
    Backend& devices = backend(device.type);
    const std::string no_device = devices.why_not(0);
    for (const auto& [codec, kind] : kDeviceCodecs) {
      std::string why_not = no_device;
      if (why_not.empty() && !has_kernel(devices.kernels(), kind)) why_not = "it has no kernel yet";
      table.push_back({std::string(codec),
                       std::string(device_implementation(device.type)),
                       device.type == Device::Type::cuda ? "cuda" : "simt",
                       why_not.empty(),
                       why_not});
    }
  }
  return table;
}

}  // namespace headrace
