// delta: the first element, then differences. bytes -> bytes in v2, array -> array in v3.
// Compatibility: numcodecs. Sums are taken in the decoded type: integers wrap. Those of timedelta64
// are NaT from the first NaT on, so what would follow one is not written.
// Spec: https://numcodecs.readthedocs.io/en/stable/filter/delta.html
// {"name": "numcodecs.delta", "configuration": {"dtype": "<i4", "astype": "<i2"}}

#include <cstdint>
#include <limits>
#include <string>

#include "codec/codecs.h"
#include "codec/scratch.h"
#include "codec/typed_filter.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// Integers wrap: their sums are those of the unsigned type. Half rounds after each operation.
template <typename T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return T(a + b);
  }
}

template <typename T>
T subtract(T a, T b) {
  if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<std::uint8_t>((a.byte != 0) != (b.byte != 0))};  // as NumPy's diff
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) - static_cast<U>(b)));
  } else {
    return T(a - b);
  }
}

constexpr std::int64_t kNaT = std::numeric_limits<std::int64_t>::min();

class Delta final : public TypedFilter {
 public:
  // `durations`: of timedelta64, whose least number is no number.
  Delta(ElementType decoded, ElementType encoded, CodecPosition position, bool durations)
      : TypedFilter(decoded, encoded, position), durations_(durations) {}

  std::string_view name() const override { return "delta"; }
  std::optional<DeviceStage> device_stage() const override {
    if (decoded_.kind == ElementType::Kind::boolean || durations_) return std::nullopt;
    return number_stage(DeviceStage::Kind::delta);
  }

 private:
  void decode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    if (decoded_.kind == ElementType::Kind::boolean) return decode_booleans(src, dst, n);
    cast_elements(encoded_, src, decoded_, dst, n);
    if (durations_) return sum_durations(dst, n);
    visit_element(decoded_, [&](auto type) {
      using T = decltype(type);
      if constexpr (!std::is_same_v<T, Bool>) {
        T sum{};
        for (std::size_t i = 0; i < n; ++i) {
          const T v = load_element<T>(dst + i * sizeof(T));
          sum = i == 0 ? v : add(sum, v);
          store_element(dst + i * sizeof(T), sum);
        }
      }
    });
  }

  static void sum_durations(std::byte* elements, std::size_t n) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto v = load_element<std::int64_t>(elements + i * sizeof(std::int64_t));
      sum = sum == kNaT || v == kNaT ? kNaT : add(sum, v);
      store_element(elements + i * sizeof(std::int64_t), sum);
    }
  }

  static void subtract_durations(const std::byte* src, std::byte* dst, std::size_t n) {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto v = load_element<std::int64_t>(src + i * sizeof(std::int64_t));
      if (last == kNaT && v != kNaT) {
        throw Error(ErrorCode::unsupported,
                    "a time follows NaT, and differences do not give it back");
      }
      store_element(dst + i * sizeof(std::int64_t), v == kNaT ? kNaT : subtract(v, last));
      last = v;
    }
  }

  // What numpy.cumsum() makes of them, which is no inverse of numcodecs' encoder: a sum of booleans
  // stays true, one of numbers is true while it is not zero.
  void decode_booleans(const std::byte* src, std::byte* dst, std::size_t n) const {
    visit_element(encoded_, [&](auto type) {
      using T = decltype(type);
      T sum{};
      for (std::size_t i = 0; i < n; ++i) {
        const T v = load_element<T>(src + i * sizeof(T));
        if constexpr (std::is_same_v<T, Bool>) {
          sum.byte |= v.byte != 0;
          dst[i] = static_cast<std::byte>(sum.byte);
        } else {
          sum = i == 0 ? v : add(sum, v);
          dst[i] = static_cast<std::byte>(sum != T{});
        }
      }
    });
  }

  void check_encodes() const override {
    if (decoded_.kind == ElementType::Kind::boolean)
      throw Error(ErrorCode::unsupported, "differences of booleans do not give them back");
  }

  void encode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    Scratch differences(n * decoded_.size);
    if (durations_) {
      subtract_durations(src, differences.data(), n);
      return cast_elements(decoded_, differences.data(), encoded_, dst, n);
    }
    visit_element(decoded_, [&](auto type) {
      using T = decltype(type);
      T last{};
      for (std::size_t i = 0; i < n; ++i) {
        const T v = load_element<T>(src + i * sizeof(T));
        store_element(differences.data() + i * sizeof(T), i == 0 ? v : subtract(v, last));
        last = v;
      }
    });
    cast_elements(decoded_, differences.data(), encoded_, dst, n);
  }

  const bool durations_;
};

// By the name of the type, where the codec has one, as numcodecs reads it.
bool is_of_durations(CodecConfig& config, const CodecSite& site) {
  if (!config.has("dtype")) return site.in.dtype.kind() == DType::Kind::timedelta;
  const std::string name = config.string("dtype");
  const std::size_t kind = name.find_first_not_of("<>|=");
  return kind != std::string::npos && name[kind] == 'm';
}

}  // namespace

CodecPtr make_delta(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const bool durations = is_of_durations(config, site);
  const ElementType dtype = element_type(config, "dtype", site.position, site_element_type(site));
  const ElementType astype = element_type(config, "astype", site.position, dtype);
  config.finish();
  check_site_type(config, dtype, site);
  return std::make_shared<Delta>(dtype, astype, site.position, durations);
}

}  // namespace headrace
