// quantize and bitround: floats with fewer digits or mantissa bits, and astype, another type.
// Decoding is a cast, or nothing. bytes -> bytes in v2, array -> array in v3.
// Compatibility: numcodecs.
// Spec: https://numcodecs.readthedocs.io/en/stable/filter/quantize.html, bitround.html, astype.html
// {"name": "numcodecs.quantize", "configuration": {"digits": 2, "dtype": "<f8", "astype": "<f4"}}
// {"name": "bitround", "configuration": {"keepbits": 10}}
// {"name": "numcodecs.astype", "configuration": {"encode_dtype": "<f4", "decode_dtype": "<f8"}}

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "codec/codecs.h"
#include "codec/sizes.h"
#include "codec/typed_filter.h"
#include "headrace/error.h"

namespace headrace {
namespace {

class CastingFilter : public TypedFilter, public ViewDecoder {
 public:
  CastingFilter(std::string_view name,
                ElementType decoded,
                ElementType encoded,
                CodecPosition position)
      : TypedFilter(decoded, encoded, position), name_(name) {}

  std::string_view name() const override { return name_; }
  PartialDecoder partial_decoder() const override {
    if (decoded_ == encoded_) return this;
    return {};
  }
  ConstBytes decode_view(ConstBytes src) const override { return src; }
  std::optional<DeviceStage> device_stage() const override {
    return number_stage(decoded_ == encoded_ ? DeviceStage::Kind::none : DeviceStage::Kind::cast);
  }

 protected:
  void decode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    cast_elements(encoded_, src, decoded_, dst, n);
  }
  void encode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    cast_elements(decoded_, src, encoded_, dst, n);
  }

 private:
  std::string_view name_;
};

class Quantize final : public CastingFilter {
 public:
  Quantize(ElementType decoded, ElementType encoded, CodecPosition position, int digits)
      : CastingFilter("quantize", decoded, encoded, position), scale_(power_of_two(digits)) {}

 private:
  // The power of two whose steps resolve so many decimal digits.
  static double power_of_two(int digits) {
    double exponent = std::log10(std::pow(10.0, -digits));
    exponent = exponent < 0 ? std::floor(exponent) : std::ceil(exponent);
    return std::exp2(std::ceil(std::log2(std::pow(10.0, -exponent))));
  }

  void encode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    visit_floating(decoded_, [&](auto type) {
      using T = decltype(type);
      T tile[kFilterTile];
      const T scale(scale_);
      for (std::size_t at = 0; at < n; at += kFilterTile) {
        const std::size_t count = std::min(kFilterTile, n - at);
        for (std::size_t i = 0; i < count; ++i) {
          const T v = load_element<T>(src + (at + i) * sizeof(T));
          tile[i] = T(T(std::nearbyint(T(scale * v))) / scale);
        }
        cast_elements(decoded_,
                      reinterpret_cast<const std::byte*>(tile),
                      encoded_,
                      dst + at * encoded_.size,
                      count);
      }
    });
  }

  double scale_;
};

class BitRound final : public CastingFilter {
 public:
  BitRound(ElementType type, CodecPosition position, unsigned drop_bits)
      : CastingFilter("bitround", type, type, position), drop_bits_(drop_bits) {}

  Transform transform() const override {
    return drop_bits_ == 0 ? Transform::identity : CastingFilter::transform();
  }

 private:
  template <typename U>
  void round(const std::byte* src, std::byte* dst, std::size_t n) const {
    const U mask = static_cast<U>(static_cast<U>(~U{0}) << drop_bits_);
    const U half = static_cast<U>((U{1} << (drop_bits_ - 1)) - 1);
    for (std::size_t i = 0; i < n; ++i) {
      const U v = load_element<U>(src + i * sizeof(U));
      const U rounded = static_cast<U>(v + ((v >> drop_bits_) & 1) + half);
      store_element(dst + i * sizeof(U), static_cast<U>(rounded & mask));
    }
  }

  // To the nearest, ties to even, of what the kept bits can say.
  void encode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    if (drop_bits_ == 0) return CastingFilter::encode_elements(src, dst, n);
    switch (decoded_.size) {
      case 2:
        return round<std::uint16_t>(src, dst, n);
      case 4:
        return round<std::uint32_t>(src, dst, n);
      default:
        return round<std::uint64_t>(src, dst, n);
    }
  }

  unsigned drop_bits_;
};

// Rounded elements are elements: of types that nobody here rounds there is nothing to undo.
class RoundedElsewhere final : public Codec, public ViewDecoder {
 public:
  RoundedElsewhere(CodecPosition position, std::string type)
      : position_(position), type_(std::move(type)) {}

  CodecKind kind() const override {
    return position_ == CodecPosition::before_bytes ? CodecKind::array_to_array
                                                    : CodecKind::bytes_to_bytes;
  }
  std::string_view name() const override { return "bitround"; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override { return EncodedNbytes::exactly(n); }
  Transform transform() const override { return Transform::in_place; }
  PartialDecoder partial_decoder() const override { return this; }
  std::optional<DeviceStage> device_stage() const override {
    return DeviceStage{DeviceStage::Kind::none};
  }

  ConstBytes decode_view(ConstBytes src) const override { return src; }
  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), src.size());
    if (!src.empty() && dst.data() != src.data()) std::memcpy(dst.data(), src.data(), src.size());
  }
  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    if (src.size() > max_nbytes) check_decoded_size(max_nbytes, src.size());
    dst.assign(src);
  }
  void check_encodes() const override {
    throw Error(ErrorCode::unsupported, "rounds floating-point numbers, not " + type_);
  }
  void encode(ConstBytes, Buffer&) const override { check_encodes(); }

 private:
  const CodecPosition position_;
  const std::string type_;
};

}  // namespace

CodecPtr make_quantize(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const auto digits = static_cast<int>(config.integer("digits", -300, 300));
  const ElementType dtype = element_type(config, "dtype", site.position, site_element_type(site));
  const ElementType astype = element_type(config, "astype", site.position, dtype);
  config.finish();
  check_site_type(config, dtype, site);
  if (!dtype.is_floating() || !astype.is_floating()) {
    config.fail("dtype", "and astype must be floating-point types");
  }
  return std::make_shared<Quantize>(dtype, astype, site.position, digits);
}

CodecPtr make_bit_round(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const std::optional<ElementType> type = site_element_type(site);
  if (site.in.dtype.variable_length()) {
    throw Error(ErrorCode::unsupported,
                "codec " + spec.name + ": rounds numbers, not " + site.in.dtype.to_string());
  }
  if (!type || !type->is_floating()) {
    static_cast<void>(config.integer("keepbits", 0, std::numeric_limits<std::int32_t>::max()));
    config.finish();
    return std::make_shared<RoundedElsewhere>(site.position, site.in.dtype.to_string());
  }
  const int mantissa_bits = type->size == 2 ? 10 : type->size == 4 ? 23 : 52;
  const auto keep = static_cast<int>(config.integer("keepbits", 0, mantissa_bits));
  config.finish();
  return std::make_shared<BitRound>(
      *type, site.position, static_cast<unsigned>(mantissa_bits - keep));
}

CodecPtr make_as_type(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const ElementType encoded = element_type(config, "encode_dtype", site.position, std::nullopt);
  const ElementType decoded =
      element_type(config, "decode_dtype", site.position, site_element_type(site));
  config.finish();
  check_site_type(config, decoded, site);
  return std::make_shared<CastingFilter>("astype", decoded, encoded, site.position);
}

}  // namespace headrace
