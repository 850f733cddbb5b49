// The loops have no branches, so that the compiler makes vectors of them: for the baseline, and for
// AVX2, with the same results.

#include "loader/row_values.h"

#include <bit>
#include <cmath>

namespace headrace::loader {
namespace {

#define HEADRACE_INLINE [[gnu::always_inline]] inline

HEADRACE_INLINE std::uint32_t choose(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

// Fixed lanes, so that the result does not depend on the processor.
template <typename T>
HEADRACE_INLINE double sum_in_lanes(const T* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 8;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += static_cast<double>(values[i + lane]);
  for (std::int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] += static_cast<double>(values[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// The logarithm of u = 1 + x by a polynomial around 1 in (log(1 + f) - f + f^2 / 2) / f^3, found by
// interpolation at Chebyshev's nodes, and what rounding u lost added. At most 1.3 units in the last
// place off.
HEADRACE_INLINE float log1p_of(float x) {
  constexpr float kCoefficients[] = {0.3333333134651184f,
                                     -0.2499999701976776f,
                                     0.20000715553760529f,
                                     -0.1666780263185501f,
                                     0.14249058067798615f,
                                     -0.12425687164068222f,
                                     0.11685419827699661f,
                                     -0.11479733884334564f,
                                     0.06971611827611923f};
  constexpr std::uint32_t kSqrtHalf = 0x3f3504f3u, kMantissa = 0x7fffffu;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -0.00021219444f;
  const float u = 1.0f + x;
  const float lost = (x - (u - 1.0f)) / u;
  const std::uint32_t shifted = std::bit_cast<std::uint32_t>(u) - kSqrtHalf;
  const auto exponent = static_cast<float>(static_cast<std::int32_t>(shifted) >> 23);
  const float f = std::bit_cast<float>((shifted & kMantissa) + kSqrtHalf) - 1.0f;
  float tail = kCoefficients[8];
  for (int i = 7; i >= 0; --i) tail = tail * f + kCoefficients[i];
  tail = tail * f * (f * f) + exponent * kLn2Low - 0.5f * (f * f);
  const float result = f + tail + exponent * kLn2High + lost;
  // Bits, not comparisons of floats: those are branches to the compiler.
  constexpr std::uint32_t kInfinity = 0x7f800000u, kNan = 0x7fc00000u, kMinusOne = 0xbf800000u;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  std::uint32_t chosen = std::bit_cast<std::uint32_t>(result);
  chosen = choose(bits == kInfinity, kInfinity, chosen);
  chosen = choose(bits == kMinusOne, kInfinity | 0x80000000u, chosen);
  chosen = choose(bits > kMinusOne, kNan, chosen);
  return std::bit_cast<float>(chosen);
}

HEADRACE_INLINE void scale_all(float* values, std::int64_t count, float divisor, bool log1p) {
  for (std::int64_t i = 0; i < count; ++i) values[i] /= divisor;
  if (log1p)
    for (std::int64_t i = 0; i < count; ++i) values[i] = log1p_of(values[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) double sum_avx2(const float* values, std::int64_t count) {
  return sum_in_lanes(values, count);
}
__attribute__((target("avx2"))) void scale_avx2(float* values,
                                                std::int64_t count,
                                                float divisor,
                                                bool log1p) {
  scale_all(values, count, divisor, log1p);
}
#endif

}  // namespace

double sum_of(const float* values, std::int64_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return sum_avx2(values, count);
#endif
  return sum_in_lanes(values, count);
}

double sum_of(const double* values, std::int64_t count) { return sum_in_lanes(values, count); }

void scale(float* values, std::int64_t count, double divisor, bool log1p) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2"))
    return scale_avx2(values, count, static_cast<float>(divisor), log1p);
#endif
  scale_all(values, count, static_cast<float>(divisor), log1p);
}

void scale(double* values, std::int64_t count, double divisor, bool log1p) {
  for (std::int64_t i = 0; i < count; ++i) values[i] /= divisor;
  if (log1p)
    for (std::int64_t i = 0; i < count; ++i) values[i] = std::log1p(values[i]);
}

}  // namespace headrace::loader
