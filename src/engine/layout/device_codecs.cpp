#include "engine/layout/device_codecs.h"

#include "device/backend.h"

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
    {"vlen-utf8", Kind::ragged},
    {"vlen-bytes", Kind::ragged},
    {"vlen-array", Kind::ragged},
};

}  // namespace

std::span<const DeviceCodec> device_codecs() { return kDeviceCodecs; }

std::optional<Device::Type> device_of_implementation(std::string_view name) {
  for (const Device::Type type : kDeviceTypes) {
    const Backend& devices = backend(type);
    if (name == devices.own_name() || devices.library(name)) return type;
  }
  return std::nullopt;
}

bool only_decodes(std::string_view implementation) {
  const auto type = device_of_implementation(implementation);
  return type && implementation != backend(*type).own_name();
}

}  // namespace headrace
