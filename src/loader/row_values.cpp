// The loops have no branches, so that the compiler makes vectors of them: for the baseline, and for
// AVX2, with the same results.

#include "loader/row_values.h"

#include <cmath>

#include "kernels/common/log1p.h"

namespace headrace::loader {
namespace {

#define HEADRACE_INLINE [[gnu::always_inline]] inline

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

// Where it is used all that it calls becomes a part of the loop (`flatten`).
HEADRACE_INLINE void scale_all(float* values, std::int64_t count, float divisor, bool log1p) {
  for (std::int64_t i = 0; i < count; ++i) values[i] /= divisor;
  if (log1p)
    for (std::int64_t i = 0; i < count; ++i) values[i] = host::log1p_of(values[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) double sum_avx2(const float* values, std::int64_t count) {
  return sum_in_lanes(values, count);
}
__attribute__((target("avx2"), flatten)) void scale_avx2(float* values,
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

__attribute__((flatten)) void scale(float* values, std::int64_t count, double divisor, bool log1p) {
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
