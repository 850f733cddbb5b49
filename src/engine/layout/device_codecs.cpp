#include "engine/layout/device_codecs.h"

#include "headrace/error.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

constexpr DeviceCodec kDeviceCodecs[] = {
    {"bytes", Kind::swap, true},
    {"transpose", Kind::transpose, true},
    {"zstd", Kind::zstd, true},
    {"blosc", Kind::blosc, true},
    {"gzip", Kind::gzip},
    {"zlib", Kind::zlib},
    {"lz4", Kind::lz4, true},
    {"crc32c", Kind::crc32c},
    {"crc32", Kind::crc32},
    {"adler32", Kind::adler32},
    {"fletcher32", Kind::fletcher32},
    {"shuffle", Kind::unshuffle, true},
    {"bitshuffle", Kind::bit_unshuffle, true},
    {"delta", Kind::delta},
    {"fixedscaleoffset", Kind::fixed_scale_offset},
    {"quantize", Kind::cast},
    {"astype", Kind::cast},
    {"packbits", Kind::packbits},
};

constexpr std::string_view kNvcompCodecs[] = {"zstd", "gzip", "lz4"};

constexpr std::string_view kCuda = "headrace-cuda";
constexpr std::string_view kSimt = "headrace-simt";

}  // namespace

std::span<const DeviceCodec> device_codecs() { return kDeviceCodecs; }

std::span<const std::string_view> nvcomp_codecs() { return kNvcompCodecs; }

std::string_view device_implementation(Device::Type type) {
  switch (type) {
    case Device::Type::cpu:
      break;
    case Device::Type::cuda:
      return kCuda;
    case Device::Type::simt:
      return kSimt;
  }
  throw Error(ErrorCode::invalid_argument, "[device_implementation] the CPU has several");
}

std::optional<Device::Type> device_of_implementation(std::string_view name) {
  if (name == kCuda || name == kNvcomp) return Device::Type::cuda;
  if (name == kSimt) return Device::Type::simt;
  return std::nullopt;
}

}  // namespace headrace
