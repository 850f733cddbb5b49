// packbits: eight booleans a byte, the first in the highest bit, after one byte that says how many
// bits of the last are padding. bytes -> bytes in v2, array -> array in v3.
// Compatibility: numcodecs. The extension registry's "packbits" is packbits_array.cpp.
// Spec: https://numcodecs.readthedocs.io/en/stable/filter/packbits.html
// {"name": "numcodecs.packbits"}

#include <utility>

#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

class PackBits final : public Codec {
 public:
  // `other`: the type of elements that are more than a byte, whose bytes numcodecs takes for
  // booleans. What was written so reads so.
  PackBits(CodecPosition position, std::string other)
      : position_(position), other_(std::move(other)) {}

  CodecKind kind() const override {
    return position_ == CodecPosition::before_bytes ? CodecKind::array_to_array
                                                    : CodecKind::bytes_to_bytes;
  }
  std::string_view name() const override { return "packbits"; }
  std::optional<DeviceStage> device_stage() const override {
    if (!other_.empty()) return std::nullopt;
    return DeviceStage{DeviceStage::Kind::packbits};
  }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::exactly(1 + packed(n));
  }

  ChunkSpec encoded_spec(const ChunkSpec& in) const override {
    return {DType::uint8, {static_cast<std::int64_t>(1 + packed(in.nbytes()))}, {}};
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), decoded_nbytes(src));
    for (std::size_t i = 0; i < dst.size(); ++i) {
      dst[i] = src[1 + i / 8] >> static_cast<int>(7 - i % 8) & std::byte{1};
    }
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    const std::size_t n = decoded_nbytes(src);
    resize_decoded(dst, n, max_nbytes);
    decode(src, dst.bytes(), {});
  }

  void check_encodes() const override {
    if (other_.empty()) return;
    throw Error(ErrorCode::unsupported,
                "packs booleans; of " + other_ + " it would keep which bytes are not zero");
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    check_encodes();
    dst.resize(1 + packed(src.size()));
    dst.data()[0] = static_cast<std::byte>(8 * packed(src.size()) - src.size());
    for (std::size_t i = 0; i < packed(src.size()); ++i) {
      unsigned bits = 0;
      for (std::size_t j = 8 * i; j < 8 * i + 8; ++j) {
        bits = bits << 1 | (j < src.size() && src[j] != std::byte{0} ? 1u : 0u);
      }
      dst.data()[1 + i] = static_cast<std::byte>(bits);
    }
  }

 private:
  static std::size_t packed(std::size_t n) { return (n + 7) / 8; }

  static std::size_t decoded_nbytes(ConstBytes src) {
    if (src.empty()) throw_corrupt("the byte that counts the padding is missing");
    const auto padding = std::to_integer<std::size_t>(src[0]);
    const std::size_t bits = 8 * (src.size() - 1);
    if (padding > 7 || padding > bits) {
      throw_corrupt(std::to_string(padding) + " bits of padding in " + std::to_string(bits));
    }
    return bits - padding;
  }

  const CodecPosition position_;
  const std::string other_;
};

}  // namespace

CodecPtr make_pack_bits(const CodecSpec& spec, const CodecSite& site) {
  if (spec.name == "packbits" && site.position == CodecPosition::before_bytes) {
    return make_pack_bits_array(spec, site);
  }
  CodecConfig(spec).finish();
  const DType& dtype = site.in.dtype;
  if (dtype.variable_length()) {
    throw Error(ErrorCode::invalid_argument,
                "codec " + spec.name + ": packs booleans, not " + dtype.to_string());
  }
  return std::make_shared<PackBits>(site.position, dtype.itemsize() == 1 ? "" : dtype.to_string());
}

}  // namespace headrace
