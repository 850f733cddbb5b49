// scale_offset: array -> array, encoded = (x - offset) * scale and decoded = encoded / scale +
// offset, in the type of the array.
// Compatibility: zarr-python 3.4, which leaves out what is the default (offset 0, scale 1). Results
// that an integer type has no value for are errors, as is a remainder when decoding.
// Spec: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/scale_offset
// {"name": "scale_offset", "configuration": {"offset": 250.0, "scale": 4.0}}

#include <utility>

#include "codec/codecs.h"
#include "codec/sizes.h"
#include "codec/typed_filter.h"

namespace headrace {
namespace {

// What integers are computed in: an overflow of it is out of range for T as well.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, std::uint64_t>, std::uint64_t, std::int64_t>;

template <typename W>
bool encode_integer(W x, W offset, W scale, W* out) {
  return !__builtin_sub_overflow(x, offset, out) && !__builtin_mul_overflow(*out, scale, out);
}

template <typename W>
bool divides(W scale, W x) {
  return (std::is_signed_v<W> && scale == static_cast<W>(-1)) || x % scale == 0;
}

// Of an x that the scale divides.
template <typename W>
bool decode_integer(W x, W offset, W scale, W* out) {
  // The one quotient that overflows is that of the lowest number by -1.
  if (scale == static_cast<W>(-1) && std::is_signed_v<W>) {
    if (__builtin_sub_overflow(W{0}, x, out)) return false;
  } else {
    *out = x / scale;
  }
  return !__builtin_add_overflow(*out, offset, out);
}

class ScaleOffset final : public TypedFilter {
 public:
  ScaleOffset(ElementType type, std::vector<std::byte> offset, std::vector<std::byte> scale)
      : TypedFilter(type, type, CodecPosition::before_bytes),
        offset_(std::move(offset)),
        scale_(std::move(scale)) {}

  std::string_view name() const override { return "scale_offset"; }
  std::optional<DeviceStage> device_stage() const override {
    if (!decoded_.is_floating()) return std::nullopt;
    DeviceStage stage = number_stage(DeviceStage::Kind::fixed_scale_offset);
    visit_floating(decoded_, [&](auto type) {
      stage.scale = static_cast<double>(load_element<decltype(type)>(scale_.data()));
      stage.offset = static_cast<double>(load_element<decltype(type)>(offset_.data()));
    });
    return stage;
  }

 private:
  std::string outside() const {
    return "outside the range of dtype " + decoded_.dtype().to_string();
  }

  template <typename Floating, typename Integer>
  void for_each(const std::byte* src,
                std::byte* dst,
                std::size_t n,
                Floating floating,
                Integer integer) const {
    visit_element(decoded_, [&](auto type) {
      using T = decltype(type);
      if constexpr (!std::is_same_v<T, Bool>) {
        const T offset = load_element<T>(offset_.data());
        const T scale = load_element<T>(scale_.data());
        for (std::size_t i = 0; i < n; ++i) {
          const T x = load_element<T>(src + i * sizeof(T));
          if constexpr (std::is_integral_v<T>) {
            store_element(dst + i * sizeof(T), integer(x, offset, scale));
          } else {
            store_element(dst + i * sizeof(T), floating(x, offset, scale));
          }
        }
      }
    });
  }

  void decode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    for_each(
        src,
        dst,
        n,
        []<typename T>(T x, T offset, T scale) { return T(T(x / scale) + offset); },
        [&]<typename T>(T x, T offset, T scale) {
          if (!divides<Wide<T>>(scale, x)) {
            throw_corrupt(std::to_string(x) + " divided by the scale " + std::to_string(scale) +
                          " has a non-zero remainder");
          }
          Wide<T> out;
          if (!decode_integer<Wide<T>>(x, offset, scale, &out) || !std::in_range<T>(out)) {
            throw_corrupt(std::to_string(x) + " decodes to a value " + outside());
          }
          return static_cast<T>(out);
        });
  }

  void encode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    for_each(
        src,
        dst,
        n,
        []<typename T>(T x, T offset, T scale) { return T(T(x - offset) * scale); },
        [&]<typename T>(T x, T offset, T scale) {
          Wide<T> out;
          if (!encode_integer<Wide<T>>(x, offset, scale, &out) || !std::in_range<T>(out)) {
            throw Error(ErrorCode::invalid_argument,
                        "encode: " + std::to_string(x) + " becomes a value " + outside());
          }
          return static_cast<T>(out);
        });
  }

  std::vector<std::byte> offset_, scale_;  // one element each
};

}  // namespace

CodecPtr make_scale_offset(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const ElementType type = number_type(spec, site.in.dtype);
  std::vector<std::byte> offset = scalar(config, "offset", site.in.dtype, "0");
  std::vector<std::byte> scale = scalar(config, "scale", site.in.dtype, "1");
  config.finish();
  double factor = 0;
  const ElementType float64{ElementType::Kind::floating, 8, false};
  cast_elements(type, scale.data(), float64, reinterpret_cast<std::byte*>(&factor), 1);
  if (factor == 0) config.fail("scale", "must not be 0");
  return std::make_shared<ScaleOffset>(type, std::move(offset), std::move(scale));
}

}  // namespace headrace
