// cast_value: array -> array, the values in another type of numbers.
// `rounding` is "nearest-even" (the default), "towards-zero", "towards-positive",
// "towards-negative" or "nearest-away". A value that the other type has no room for is an error,
// or, by `out_of_range`, "clamp"ed (to infinity in floats) or "wrap"ped (integers only). NaN and
// infinities become integers only by `scalar_map`, which goes before all else.
// Compatibility: zarr-python 3.4 with cast-value-rs 0.5.
// Spec: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/cast_value
// {"name": "cast_value", "configuration":
//  {"data_type": "uint8", "out_of_range": "clamp", "scalar_map": {"encode": [["NaN", 255]]}}}

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "codec/codecs.h"
#include "codec/sizes.h"
#include "codec/typed_filter.h"
#include "format/fill_value.h"
#include "format/json.h"

namespace headrace {
namespace {

enum class Rounding : std::uint8_t {
  nearest_even,
  towards_zero,
  towards_positive,
  towards_negative,
  nearest_away,
};
constexpr std::string_view kRoundings[] = {
    "nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"};

enum class OutOfRange : std::uint8_t { error, clamp, wrap };
constexpr std::string_view kOutOfRange[] = {"error", "clamp", "wrap"};

// Bits of the mantissa but the leading one, and the power of two of the smallest number.
template <typename T>
constexpr int kMantissaBits = std::is_same_v<T, Half>    ? 10
                              : std::is_same_v<T, float> ? 23
                                                         : 52;
template <typename T>
constexpr int kSmallest = std::is_same_v<T, Half>    ? -24
                          : std::is_same_v<T, float> ? -149
                                                     : -1074;
template <typename T>
constexpr double kLargest = std::is_same_v<T, Half> ? 65504 : std::numeric_limits<T>::max();

double round_to_integer(double v, Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest_even:
      return std::nearbyint(v);
    case Rounding::towards_zero:
      return std::trunc(v);
    case Rounding::towards_positive:
      return std::ceil(v);
    case Rounding::towards_negative:
      return std::floor(v);
    case Rounding::nearest_away:
      break;
  }
  return std::round(v);
}

// To as many bits as a T has, were its exponents without end.
template <typename T>
double round_float(double v, Rounding rounding) {
  if (std::is_same_v<T, double> || !std::isfinite(v) || v == 0) return v;
  const int unit = std::max(std::ilogb(v) - kMantissaBits<T>, kSmallest<T>);
  return std::ldexp(round_to_integer(std::ldexp(v, -unit), rounding), unit);
}

// The same of an integer, of which a double may not have all bits.
template <typename T, typename Integer>
double round_integer(Integer v, Rounding rounding) {
  const bool negative = v < 0;
  const auto bits = static_cast<std::uint64_t>(v);
  const std::uint64_t magnitude = negative ? 0 - bits : bits;
  const int excess = std::bit_width(magnitude) - (kMantissaBits<T> + 1);
  if (excess <= 0) return static_cast<double>(v);
  // Rounding sees the last bit that stays and how what goes compares with a half of it.
  const std::uint64_t kept = magnitude >> excess;
  const std::uint64_t rest = magnitude - (kept << excess);
  const std::uint64_t half = std::uint64_t{1} << (excess - 1);
  const double fraction = rest == 0 ? 0 : rest < half ? 0.25 : rest == half ? 0.5 : 0.75;
  const double last = static_cast<double>(kept & 1) + fraction;
  const double rounded = std::abs(round_to_integer(negative ? -last : last, rounding));
  const double out = std::ldexp(static_cast<double>(kept & ~std::uint64_t{1}) + rounded, excess);
  return negative ? -out : out;
}

// The same as a T, to the nearest and even; infinite out of range.
template <typename T, typename From>
T nearest_float(From v) {
  if constexpr (std::is_same_v<T, Half>) {
    return Half(static_cast<double>(v));  // exact for all that Half has room for
  } else {
    return static_cast<T>(v);
  }
}

template <typename T>
std::string shown(T v) {
  if constexpr (std::is_integral_v<T>) return std::to_string(v);
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, static_cast<double>(v)).ptr;
  return {digits, end};
}

// One direction of the codec: from elements of one type to elements of another.
class Cast {
 public:
  // `failure`: what a value that cannot be cast is.
  Cast(ElementType from, ElementType to, Rounding rounding, OutOfRange mode, ErrorCode failure)
      : from_(from), to_(to), rounding_(rounding), mode_(mode), failure_(failure) {}

  // One native element of each type.
  void map(std::vector<std::byte> key, std::vector<std::byte> value) {
    map_.emplace_back(std::move(key), std::move(value));
  }

  // True when it changes nothing.
  bool identity() const { return from_ == to_ && map_.empty(); }
  // True when no value can fail and NumPy's own cast gives the same.
  bool is_plain() const;
  void run(const std::byte* src, std::byte* dst, std::size_t n) const;

 private:
  template <typename To, typename From>
  To convert(From v) const;
  template <typename To, typename From>
  To outside(From v, bool above, double rounded) const;
  template <typename From>
  const std::byte* find(From v) const;

  ElementType from_, to_;
  Rounding rounding_;
  OutOfRange mode_;
  ErrorCode failure_;
  std::vector<std::pair<std::vector<std::byte>, std::vector<std::byte>>> map_;
};

bool Cast::is_plain() const {
  if (!map_.empty()) return false;
  if (from_ == to_) return true;
  const auto bits = [](const ElementType& t) { return 8 * static_cast<int>(t.size); };
  if (from_.is_floating()) return to_.is_floating() && to_.size > from_.size;
  const bool is_signed = from_.kind == ElementType::Kind::integer;
  if (to_.is_floating()) {
    const int mantissa = to_.size == 2 ? 10 : to_.size == 4 ? 23 : 52;
    return bits(from_) <= mantissa + 1;
  }
  const bool to_signed = to_.kind == ElementType::Kind::integer;
  return is_signed == to_signed ? to_.size >= from_.size : to_signed && to_.size > from_.size;
}

// The value that an entry of the map gives for v; null when there is none. The last entry counts.
template <typename From>
const std::byte* Cast::find(From v) const {
  for (auto entry = map_.rbegin(); entry != map_.rend(); ++entry) {
    const From key = load_element<From>(entry->first.data());
    const bool both_nan = key != key && v != v;
    if (key == v || both_nan) return entry->second.data();
  }
  return nullptr;
}

// `rounded`: v without its fraction, where To is an integer.
template <typename To, typename From>
To Cast::outside(From v, bool above, double rounded) const {
  constexpr bool kInteger = std::is_integral_v<To>;
  if (mode_ == OutOfRange::clamp) {
    using Limits = std::numeric_limits<To>;
    if constexpr (kInteger) return above ? Limits::max() : Limits::lowest();
    if constexpr (!kInteger) return To(above ? HUGE_VAL : -HUGE_VAL);
  }
  if constexpr (kInteger) {
    if (mode_ == OutOfRange::wrap) {
      if constexpr (std::is_integral_v<From>) return static_cast<To>(v);
      const auto magnitude = static_cast<std::uint64_t>(std::fmod(std::abs(rounded), 0x1p64));
      return static_cast<To>(rounded < 0 ? 0 - magnitude : magnitude);
    }
  }
  throw Error(failure_, shown(v) + " is out of range of " + to_.dtype().to_string());
}

template <typename To, typename From>
To Cast::convert(From v) const {
  if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    if (std::in_range<To>(v)) return static_cast<To>(v);
    return outside<To>(v, std::cmp_greater(v, 0), 0);
  } else if constexpr (std::is_integral_v<To>) {
    const double wide = static_cast<double>(v);
    if (!std::isfinite(wide)) {
      throw Error(failure_, shown(v) + " is no integer, and scalar_map has nothing for it");
    }
    const double rounded = round_to_integer(wide, rounding_);
    // Both ends are powers of two or 0: no double lies between the largest and one more.
    constexpr auto kEnd = static_cast<double>(To{1} << (std::numeric_limits<To>::digits - 1)) * 2;
    const bool fits = rounded < kEnd && rounded >= (std::is_signed_v<To> ? -kEnd : 0);
    return fits ? static_cast<To>(rounded) : outside<To>(v, rounded > 0, rounded);
  } else {
    if (rounding_ == Rounding::nearest_even) {  // conversions do it, without the work below
      const To nearest = nearest_float<To>(v);
      const bool overflows = !std::isfinite(static_cast<double>(nearest));
      const bool finite = std::isfinite(static_cast<double>(v));
      return overflows && finite ? outside<To>(v, v > 0, 0) : nearest;
    }
    double rounded = 0;
    if constexpr (std::is_integral_v<From>) rounded = round_integer<To>(v, rounding_);
    if constexpr (!std::is_integral_v<From>) rounded = round_float<To>(v, rounding_);
    if (std::isfinite(rounded) && std::abs(rounded) > kLargest<To>) {
      return outside<To>(v, rounded > 0, rounded);
    }
    return To(rounded);
  }
}

void Cast::run(const std::byte* src, std::byte* dst, std::size_t n) const {
  if (is_plain()) return cast_elements(from_, src, to_, dst, n);
  visit_element(from_, [&](auto from) {
    using From = decltype(from);
    visit_element(to_, [&](auto to) {
      using To = decltype(to);
      if constexpr (!std::is_same_v<From, Bool> && !std::is_same_v<To, Bool>) {
        for (std::size_t i = 0; i < n; ++i) {
          const From v = load_element<From>(src + i * sizeof(From));
          const std::byte* const mapped = map_.empty() ? nullptr : find(v);
          store_element(dst + i * sizeof(To), mapped ? load_element<To>(mapped) : convert<To>(v));
        }
      }
    });
  });
}

class CastValue final : public TypedFilter {
 public:
  CastValue(ElementType decoded, ElementType encoded, Cast encode, Cast decode)
      : TypedFilter(decoded, encoded, CodecPosition::before_bytes),
        encode_(std::move(encode)),
        decode_(std::move(decode)) {}

  std::string_view name() const override { return "cast_value"; }
  Transform transform() const override {
    const bool identity = encode_.identity() && decode_.identity();
    return identity ? Transform::identity : TypedFilter::transform();
  }
  std::optional<DeviceStage> device_stage() const override {
    if (!decode_.is_plain()) return std::nullopt;
    return number_stage(decode_.identity() ? DeviceStage::Kind::none : DeviceStage::Kind::cast);
  }

 private:
  void decode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    decode_.run(src, dst, n);
  }
  void encode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    encode_.run(src, dst, n);
  }

  Cast encode_, decode_;
};

template <typename Enum, std::size_t N>
Enum read_enum(CodecConfig& config, const char* field, const std::string_view (&names)[N]) {
  const std::string text = config.string(field, names[0]);
  for (std::size_t i = 0; i < N; ++i) {
    if (text == names[i]) return static_cast<Enum>(i);
  }
  config.fail(field, "is unknown: \"" + text + '"');
}

std::vector<std::byte> element(const CodecConfig& config, const DType& dtype, const Json& json) {
  try {
    return fill_value_from_json(dtype, json).value();
  } catch (const Error&) {
    config.fail("scalar_map", std::string(json.text()) + " is no value of " + dtype.to_string());
  }
}

void read_map(const CodecConfig& config,
              const std::optional<Json>& pairs,
              const DType& from,
              const DType& to,
              Cast& cast) {
  if (!pairs || pairs->is_null()) return;
  for (const Json& pair : pairs->items()) {
    const std::vector<Json> both = pair.items();
    if (both.size() != 2) config.fail("scalar_map", "must hold pairs");
    cast.map(element(config, from, both[0]), element(config, to, both[1]));
  }
}

}  // namespace

CodecPtr make_cast_value(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const DType decoded_dtype = site.in.dtype;
  const DType encoded_dtype = DType::from_name(config.string("data_type"));
  const ElementType decoded = number_type(spec, decoded_dtype);
  const ElementType encoded = number_type(spec, encoded_dtype);
  const auto rounding = read_enum<Rounding>(config, "rounding", kRoundings);
  const auto mode = read_enum<OutOfRange>(config, "out_of_range", kOutOfRange);
  const std::string map = config.json("scalar_map");
  config.finish();
  if (mode == OutOfRange::wrap && encoded.is_floating()) {
    config.fail("out_of_range", "\"wrap\" is for integers only");
  }
  Cast encode(decoded, encoded, rounding, mode, ErrorCode::invalid_argument);
  Cast decode(encoded, decoded, rounding, mode, ErrorCode::corrupt);
  if (!map.empty()) {
    const Json json = Json::parse(map, "scalar_map");
    read_map(config, json.find("encode"), decoded_dtype, encoded_dtype, encode);
    read_map(config, json.find("decode"), encoded_dtype, decoded_dtype, decode);
  }
  return std::make_shared<CastValue>(decoded, encoded, std::move(encode), std::move(decode));
}

}  // namespace headrace
