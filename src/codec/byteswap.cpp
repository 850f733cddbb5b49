#include "codec/byteswap.h"

#include "headrace/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace {
namespace {

template <typename T>
void swap_portable(const std::byte* src, std::byte* dst, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    T v;
    std::memcpy(&v, src + i * sizeof(T), sizeof v);
    v = byteswap(v);
    std::memcpy(dst + i * sizeof(T), &v, sizeof v);
  }
}

#if defined(__x86_64__)
// Gives the bytes done, a multiple of 32.
__attribute__((target("avx2"))) std::size_t swap_avx2(std::size_t unit,
                                                      const std::byte* src,
                                                      std::byte* dst,
                                                      std::size_t nbytes) {
  alignas(32) std::uint8_t order[32];
  for (std::size_t i = 0; i < 32; ++i) {
    order[i] = static_cast<std::uint8_t>((i % 16) / unit * unit + unit - 1 - i % unit);
  }
  const __m256i shuffle = _mm256_load_si256(reinterpret_cast<const __m256i*>(order));
  std::size_t i = 0;
  for (; i + 64 <= nbytes; i += 64) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i + 32));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i), _mm256_shuffle_epi8(a, shuffle));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i + 32), _mm256_shuffle_epi8(b, shuffle));
  }
  return i;
}
#endif

}  // namespace

void swap_bytes(std::size_t unit, const std::byte* src, std::byte* dst, std::size_t n_units) {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) done = swap_avx2(unit, src, dst, n_units * unit);
#endif
  src += done;
  dst += done;
  n_units -= done / unit;
  switch (unit) {
    case 2:
      return swap_portable<std::uint16_t>(src, dst, n_units);
    case 4:
      return swap_portable<std::uint32_t>(src, dst, n_units);
    case 8:
      return swap_portable<std::uint64_t>(src, dst, n_units);
    default:
      throw Error(ErrorCode::unsupported, "byte swap of " + std::to_string(unit) + "-byte units");
  }
}

}  // namespace headrace
