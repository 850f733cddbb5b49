// Rows of numbers, converted and normalised. The loops have no branches, so that the compiler makes
// vectors of them: for the baseline, and for AVX2.

#include "loader/conversions.h"

#include <array>
#include <bit>
#include <concepts>
#include <type_traits>
#include <utility>

namespace headrace::loader {
namespace {

#define HEADRACE_INLINE [[gnu::always_inline]] inline

struct Half {
  std::uint16_t bits;
};
struct BFloat {
  std::uint16_t bits;
};
struct Boolean {
  std::uint8_t value;
};

// Without a branch, into which the compiler would move what only one of the two needs.
template <std::unsigned_integral T>
HEADRACE_INLINE T choose(bool condition, T yes, T no) {
  const T mask = T{0} - static_cast<T>(condition);
  return (yes & mask) | (no & ~mask);
}

HEADRACE_INLINE float to_float(Half half) {
  const std::uint32_t magnitude = half.bits & 0x7fffu, sign = (half.bits & 0x8000u) << 16;
  // The exponent is moved by a multiplication, which is right for subnormal numbers too.
  const std::uint32_t scaled =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  const std::uint32_t special = 0x7f800000u | magnitude << 13;
  return std::bit_cast<float>(sign | choose(magnitude >= 0x7c00u, special, scaled));
}

HEADRACE_INLINE float to_float(BFloat value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// To nearest, ties to even.
HEADRACE_INLINE void store(float value, Half& half) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  // Adding 1/2 rounds to multiples of 2^-24, the smallest of the subnormal numbers.
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
  std::uint32_t result = choose(magnitude < (113u << 23), small, normal);
  result = choose(magnitude >= 0x477ff000u, 0x7c00u, result);
  result = choose(magnitude > 0x7f800000u, 0x7e00u, result);
  half.bits = static_cast<std::uint16_t>(sign | result);
}

HEADRACE_INLINE void store(double value, Half& half) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value), sign = bits >> 48 & 0x8000u;
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  const std::uint64_t normal = (magnitude + ((std::uint64_t{1} << 41) - 1) + (magnitude >> 42 & 1) -
                                (std::uint64_t{1008} << 52)) >>
                               42;
  // Adding 2^28 rounds to multiples of 2^-24.
  const std::uint64_t small =
      std::bit_cast<std::uint64_t>(std::bit_cast<double>(magnitude) + 0x1p28) -
      std::bit_cast<std::uint64_t>(0x1p28);
  std::uint64_t result = choose(magnitude < std::bit_cast<std::uint64_t>(0x1p-14), small, normal);
  result =
      choose(magnitude >= std::bit_cast<std::uint64_t>(65520.0), std::uint64_t{0x7c00}, result);
  result = choose(magnitude > std::uint64_t{0x7ff} << 52, std::uint64_t{0x7e00}, result);
  half.bits = static_cast<std::uint16_t>(sign | result);
}

HEADRACE_INLINE void store(float value, BFloat& target) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const std::uint32_t nan = bits >> 16 | 0x40u;
  target.bits =
      static_cast<std::uint16_t>(choose((bits & 0x7fffffffu) > 0x7f800000u, nan, rounded));
}
HEADRACE_INLINE void store(double value, BFloat& target) {
  store(static_cast<float>(value), target);
}

template <typename Value, std::floating_point To>
HEADRACE_INLINE void store(Value value, To& target) {
  target = static_cast<To>(value);
}

template <typename Compute, typename From>
HEADRACE_INLINE Compute load(From value) {
  if constexpr (std::is_same_v<From, Boolean>)
    return value.value != 0 ? Compute{1} : Compute{0};
  else if constexpr (std::is_arithmetic_v<From>)
    return static_cast<Compute>(value);
  else
    return static_cast<Compute>(to_float(value));
}

template <typename From, typename To>
inline constexpr bool kWide = std::is_same_v<To, double> || std::is_same_v<From, double> ||
                              (std::is_integral_v<From> && sizeof(From) >= 4);

template <typename From, typename To>
HEADRACE_INLINE void convert(const ConvertedRow& row) {
  using Compute = std::conditional_t<kWide<From, To>, double, float>;
  const auto mean = static_cast<Compute>(row.mean), std = static_cast<Compute>(row.std),
             fill = static_cast<Compute>(row.nan_fill);
  const auto element = [&](const From& from, To& to) {
    const Compute value = (load<Compute>(from) - mean) / std;
    store(value != value ? fill : value, to);
  };
  if (row.from_step == sizeof(From) && row.to_step == sizeof(To)) {
    const auto* __restrict from = reinterpret_cast<const From*>(row.from);
    auto* __restrict to = reinterpret_cast<To*>(row.to);
    for (std::int64_t i = 0; i < row.count; ++i) element(from[i], to[i]);
  } else {
    for (std::int64_t i = 0; i < row.count; ++i)
      element(*reinterpret_cast<const From*>(row.from + i * row.from_step),
              *reinterpret_cast<To*>(row.to + i * row.to_step));
  }
}

template <typename From, typename To>
void convert_baseline(const ConvertedRow& row) {
  convert<From, To>(row);
}

#if defined(__x86_64__)
template <typename From, typename To>
__attribute__((target("avx2"))) void convert_avx2(const ConvertedRow& row) {
  convert<From, To>(row);
}
#endif

template <typename From, typename To>
ConvertRow conversion() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return convert_avx2<From, To>;
#endif
  return convert_baseline<From, To>;
}

template <typename From>
ConvertRow conversion_to(Number to) {
  switch (to) {
    case Number::float16:
      return conversion<From, Half>();
    case Number::bfloat16:
      return conversion<From, BFloat>();
    case Number::float64:
      return conversion<From, double>();
    default:
      return conversion<From, float>();
  }
}

}  // namespace

std::optional<Number> number_of(const DType& dtype) {
  static const std::array<std::pair<DType, Number>, 13> kNumbers{{
      {DType::boolean, Number::boolean},
      {DType::int8, Number::int8},
      {DType::int16, Number::int16},
      {DType::int32, Number::int32},
      {DType::int64, Number::int64},
      {DType::uint8, Number::uint8},
      {DType::uint16, Number::uint16},
      {DType::uint32, Number::uint32},
      {DType::uint64, Number::uint64},
      {DType::float16, Number::float16},
      {DType::float32, Number::float32},
      {DType::float64, Number::float64},
      {DType::bfloat16, Number::bfloat16},
  }};
  for (const auto& [type, number] : kNumbers)
    if (type == dtype) return number;
  return std::nullopt;
}

ConvertRow row_conversion(Number from, Number to) {
  switch (from) {
    case Number::boolean:
      return conversion_to<Boolean>(to);
    case Number::int8:
      return conversion_to<std::int8_t>(to);
    case Number::int16:
      return conversion_to<std::int16_t>(to);
    case Number::int32:
      return conversion_to<std::int32_t>(to);
    case Number::int64:
      return conversion_to<std::int64_t>(to);
    case Number::uint8:
      return conversion_to<std::uint8_t>(to);
    case Number::uint16:
      return conversion_to<std::uint16_t>(to);
    case Number::uint32:
      return conversion_to<std::uint32_t>(to);
    case Number::uint64:
      return conversion_to<std::uint64_t>(to);
    case Number::float16:
      return conversion_to<Half>(to);
    case Number::float64:
      return conversion_to<double>(to);
    case Number::bfloat16:
      return conversion_to<BFloat>(to);
    case Number::float32:
      break;
  }
  return conversion_to<float>(to);
}

}  // namespace headrace::loader
