// Layouts: https://github.com/jax-ml/ml_dtypes and the data types of the zarr-extensions registry.
#include "format/small_float.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "headrace/error.h"

namespace headrace {
namespace {

std::uint64_t ones(int n) { return n == 0 ? 0 : ~std::uint64_t{0} >> (64 - n); }

std::uint64_t exponent_field(const FloatLayout& layout, std::uint64_t bits) {
  return bits >> layout.mantissa_bits & ones(layout.exponent_bits);
}

std::uint64_t sign_bit(const FloatLayout& layout) {
  return layout.has_sign ? std::uint64_t{1} << (layout.exponent_bits + layout.mantissa_bits) : 0;
}

std::uint64_t nan_bits(const FloatLayout& layout) {
  const std::uint64_t magnitude = ones(layout.exponent_bits + layout.mantissa_bits);
  switch (layout.special) {
    case FloatLayout::Special::ieee:
      return ones(layout.exponent_bits + 1) << (layout.mantissa_bits - 1);
    case FloatLayout::Special::fnuz:
      return sign_bit(layout);
    default:
      return magnitude;
  }
}

bool is_nan(const FloatLayout& layout, std::uint64_t bits) {
  const std::uint64_t magnitude = bits & ones(layout.exponent_bits + layout.mantissa_bits);
  switch (layout.special) {
    case FloatLayout::Special::ieee:
      return exponent_field(layout, bits) == ones(layout.exponent_bits) &&
             (bits & ones(layout.mantissa_bits)) != 0;
    case FloatLayout::Special::fn:
      return magnitude == ones(layout.exponent_bits + layout.mantissa_bits);
    case FloatLayout::Special::fnuz:
      return bits == sign_bit(layout);
    case FloatLayout::Special::none:
      return false;
  }
  return false;
}

// Largest finite magnitude.
std::uint64_t max_finite(const FloatLayout& layout) {
  const std::uint64_t magnitude = ones(layout.exponent_bits + layout.mantissa_bits);
  switch (layout.special) {
    case FloatLayout::Special::ieee:
      return magnitude - (std::uint64_t{1} << layout.mantissa_bits);
    case FloatLayout::Special::fn:
      return magnitude - 1;
    default:
      return magnitude;
  }
}

}  // namespace

FloatLayout float_layout(const DType& dtype) {
  using S = FloatLayout::Special;
  static const std::pair<const char*, FloatLayout> kLayouts[] = {
      {"float16", {16, 5, 10, 15, true, S::ieee}},
      {"float32", {32, 8, 23, 127, true, S::ieee}},
      {"float64", {64, 11, 52, 1023, true, S::ieee}},
      {"bfloat16", {16, 8, 7, 127, true, S::ieee}},
      {"float8_e3m4", {8, 3, 4, 3, true, S::ieee}},
      {"float8_e4m3", {8, 4, 3, 7, true, S::ieee}},
      {"float8_e5m2", {8, 5, 2, 15, true, S::ieee}},
      {"float8_e4m3fn", {8, 4, 3, 7, true, S::fn}},
      {"float8_e4m3fnuz", {8, 4, 3, 8, true, S::fnuz}},
      {"float8_e4m3b11fnuz", {8, 4, 3, 11, true, S::fnuz}},
      {"float8_e5m2fnuz", {8, 5, 2, 16, true, S::fnuz}},
      {"float8_e8m0fnu", {8, 8, 0, 127, false, S::fn}},
      {"float6_e2m3fn", {6, 2, 3, 1, true, S::none}},
      {"float6_e3m2fn", {6, 3, 2, 3, true, S::none}},
      {"float4_e2m1fn", {4, 2, 1, 1, true, S::none}},
  };
  const std::string name = dtype.name();
  for (const auto& [known, layout] : kLayouts) {
    if (name == known) return layout;
  }
  throw Error(ErrorCode::invalid_argument, dtype.to_string() + " is no floating type");
}

std::optional<std::uint64_t> float_to_bits(const FloatLayout& layout, double value) {
  using S = FloatLayout::Special;
  if (std::isnan(value)) {
    if (layout.special == S::none) return std::nullopt;
    return nan_bits(layout);
  }
  const bool negative = std::signbit(value);
  if (negative && !layout.has_sign) return std::nullopt;
  const std::uint64_t sign = negative ? sign_bit(layout) : 0;
  const std::uint64_t infinity = ones(layout.exponent_bits) << layout.mantissa_bits;
  if (std::isinf(value)) {
    if (layout.special != S::ieee) return std::nullopt;
    return sign | infinity;
  }
  if (value == 0) {
    if (!layout.has_sign) return std::nullopt;  // float8_e8m0fnu has no zero
    return layout.special == S::fnuz ? 0 : sign;
  }

  // value = m * 2^(e - 52) with 2^52 <= m < 2^53
  int e = 0;
  const double fraction = std::frexp(std::abs(value), &e);
  auto m = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
  --e;
  // e8m0 has no subnormals: its field 0 is 2^-127.
  const int min_exponent = layout.mantissa_bits == 0 ? -layout.bias : 1 - layout.bias;
  const bool subnormal = e < min_exponent;
  const int drop = 52 - layout.mantissa_bits + (subnormal ? min_exponent - e : 0);
  if (drop > 54) {
    m = 0;
  } else if (drop > 0) {
    const std::uint64_t rest = m & ones(drop), half = std::uint64_t{1} << (drop - 1);
    m >>= drop;
    if (rest > half || (rest == half && (m & 1) != 0)) ++m;
  }
  if (m == 0 && !layout.has_sign) return std::nullopt;
  // A mantissa that rounded up to the next power carries into the exponent by itself.
  const std::int64_t field = subnormal ? 0 : e + layout.bias;
  const std::uint64_t implicit = subnormal ? 0 : std::uint64_t{1} << layout.mantissa_bits;
  const std::uint64_t bits =
      (static_cast<std::uint64_t>(field) << layout.mantissa_bits) + (m - implicit);
  if (field > static_cast<std::int64_t>(ones(layout.exponent_bits)) || bits > max_finite(layout)) {
    if (layout.special != S::ieee) return std::nullopt;
    return sign | infinity;
  }
  if (bits == 0 && layout.special == S::fnuz) return 0;
  return sign | bits;
}

std::uint64_t load_bits(const std::byte* in, std::size_t nbytes) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < nbytes; ++i) {
    const std::size_t at = std::endian::native == std::endian::little ? i : nbytes - 1 - i;
    bits |= std::to_integer<std::uint64_t>(in[at]) << (8 * i);
  }
  return bits;
}

double float_from_bits(const FloatLayout& layout, std::uint64_t bits) {
  if (is_nan(layout, bits)) return std::numeric_limits<double>::quiet_NaN();
  const double sign = (bits & sign_bit(layout)) != 0 ? -1.0 : 1.0;
  const auto field = static_cast<int>(exponent_field(layout, bits));
  const std::uint64_t mantissa = bits & ones(layout.mantissa_bits);
  if (layout.special == FloatLayout::Special::ieee &&
      exponent_field(layout, bits) == ones(layout.exponent_bits)) {
    return sign * std::numeric_limits<double>::infinity();
  }
  if (field == 0 && layout.mantissa_bits > 0) {
    return sign * std::ldexp(static_cast<double>(mantissa), 1 - layout.bias - layout.mantissa_bits);
  }
  const std::uint64_t significand = mantissa | std::uint64_t{1} << layout.mantissa_bits;
  return sign *
         std::ldexp(static_cast<double>(significand), field - layout.bias - layout.mantissa_bits);
}

}  // namespace headrace
