#include "codec/shuffle_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace headrace {
namespace {

// One round of a perfect shuffle over T vectors interleaves vector i with vector i + T/2, bytewise;
// log2(T) rounds turn T planes into T-byte elements. The rounds of the way back undo them. Unless
// all loops over vectors are unrolled the vectors live in memory: 7 GB/s instead of 50 for T = 8.

template <std::size_t T>
std::size_t unshuffle_sse2(const std::byte* const* planes, std::size_t n, std::byte* dst) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m128i a[T], b[T];
#pragma GCC unroll 16
    for (std::size_t j = 0; j < T; ++j) {
      a[j] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(planes[j] + i));
    }
#pragma GCC unroll 16
    for (std::size_t round = T; round > 1; round /= 2) {
#pragma GCC unroll 16
      for (std::size_t j = 0; j < T / 2; ++j) {
        b[2 * j] = _mm_unpacklo_epi8(a[j], a[j + T / 2]);
        b[2 * j + 1] = _mm_unpackhi_epi8(a[j], a[j + T / 2]);
      }
#pragma GCC unroll 16
      for (std::size_t j = 0; j < T; ++j) a[j] = b[j];
    }
    auto* out = reinterpret_cast<__m128i*>(dst + i * T);
#pragma GCC unroll 16
    for (std::size_t j = 0; j < T; ++j) _mm_storeu_si128(out + j, a[j]);
  }
  return i;
}

template <std::size_t T>
std::size_t shuffle_sse2(const std::byte* src, std::size_t n, std::byte* const* planes) {
  const __m128i low = _mm_set1_epi16(0xff);
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m128i a[T], b[T];
    const auto* in = reinterpret_cast<const __m128i*>(src + i * T);
#pragma GCC unroll 16
    for (std::size_t j = 0; j < T; ++j) a[j] = _mm_loadu_si128(in + j);
#pragma GCC unroll 16
    for (std::size_t round = T; round > 1; round /= 2) {
#pragma GCC unroll 16
      for (std::size_t j = 0; j < T / 2; ++j) {
        b[j] = _mm_packus_epi16(_mm_and_si128(a[2 * j], low), _mm_and_si128(a[2 * j + 1], low));
        b[j + T / 2] =
            _mm_packus_epi16(_mm_srli_epi16(a[2 * j], 8), _mm_srli_epi16(a[2 * j + 1], 8));
      }
#pragma GCC unroll 16
      for (std::size_t j = 0; j < T; ++j) a[j] = b[j];
    }
#pragma GCC unroll 16
    for (std::size_t j = 0; j < T; ++j) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(planes[j] + i), a[j]);
    }
  }
  return i;
}

// AVX2 interleaves within its two lanes: lane 0 works on elements 0..15, lane 1 on 16..31, and the
// lanes are put in order where vectors meet the elements.

template <std::size_t T>
__attribute__((target("avx2"))) std::size_t unshuffle_avx2(const std::byte* const* planes,
                                                           std::size_t n,
                                                           std::byte* dst) {
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i a[T], b[T];
#pragma GCC unroll 16
    for (std::size_t j = 0; j < T; ++j) {
      a[j] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(planes[j] + i));
    }
#pragma GCC unroll 16
    for (std::size_t round = T; round > 1; round /= 2) {
#pragma GCC unroll 16
      for (std::size_t j = 0; j < T / 2; ++j) {
        b[2 * j] = _mm256_unpacklo_epi8(a[j], a[j + T / 2]);
        b[2 * j + 1] = _mm256_unpackhi_epi8(a[j], a[j + T / 2]);
      }
#pragma GCC unroll 16
      for (std::size_t j = 0; j < T; ++j) a[j] = b[j];
    }
    auto* out = reinterpret_cast<__m256i*>(dst + i * T);
#pragma GCC unroll 16
    for (std::size_t j = 0; j < T / 2; ++j) {
      const __m256i x = a[2 * j];
      const __m256i y = a[2 * j + 1];
      _mm256_storeu_si256(out + j, _mm256_permute2x128_si256(x, y, 0x20));
      _mm256_storeu_si256(out + T / 2 + j, _mm256_permute2x128_si256(x, y, 0x31));
    }
  }
  return i;
}

template <std::size_t T>
__attribute__((target("avx2"))) std::size_t shuffle_avx2(const std::byte* src,
                                                         std::size_t n,
                                                         std::byte* const* planes) {
  const __m256i low = _mm256_set1_epi16(0xff);
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i a[T], b[T];
    const auto* in = reinterpret_cast<const __m256i*>(src + i * T);
#pragma GCC unroll 16
    for (std::size_t j = 0; j < T / 2; ++j) {
      const __m256i x = _mm256_loadu_si256(in + j);
      const __m256i y = _mm256_loadu_si256(in + T / 2 + j);
      a[2 * j] = _mm256_permute2x128_si256(x, y, 0x20);
      a[2 * j + 1] = _mm256_permute2x128_si256(x, y, 0x31);
    }
#pragma GCC unroll 16
    for (std::size_t round = T; round > 1; round /= 2) {
#pragma GCC unroll 16
      for (std::size_t j = 0; j < T / 2; ++j) {
        b[j] = _mm256_packus_epi16(_mm256_and_si256(a[2 * j], low),
                                   _mm256_and_si256(a[2 * j + 1], low));
        b[j + T / 2] =
            _mm256_packus_epi16(_mm256_srli_epi16(a[2 * j], 8), _mm256_srli_epi16(a[2 * j + 1], 8));
      }
#pragma GCC unroll 16
      for (std::size_t j = 0; j < T; ++j) a[j] = b[j];
    }
#pragma GCC unroll 16
    for (std::size_t j = 0; j < T; ++j) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(planes[j] + i), a[j]);
    }
  }
  return i;
}

// Swaps the bits that `mask` selects with those `shift` above them.
__attribute__((target("avx2"))) inline __m256i swap_bits(__m256i x, int shift, long long mask) {
  const __m256i t =
      _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64(x, shift)), _mm256_set1_epi64x(mask));
  return _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi64(t, shift)));
}

__attribute__((target("avx2"))) std::size_t transpose_bits_avx2(std::byte* data,
                                                                std::size_t n_words) {
  std::size_t i = 0;
  for (; i + 4 <= n_words; i += 4) {
    auto* p = reinterpret_cast<__m256i*>(data + 8 * i);
    __m256i x = _mm256_loadu_si256(p);
    x = swap_bits(x, 7, 0x00AA00AA00AA00AA);
    x = swap_bits(x, 14, 0x0000CCCC0000CCCC);
    x = swap_bits(x, 28, 0x00000000F0F0F0F0);
    _mm256_storeu_si256(p, x);
  }
  return i;
}

constexpr ShuffleKernels kSse2{
    "sse2",
    {unshuffle_sse2<2>, unshuffle_sse2<4>, unshuffle_sse2<8>, unshuffle_sse2<16>},
    {shuffle_sse2<2>, shuffle_sse2<4>, shuffle_sse2<8>, shuffle_sse2<16>},
    nullptr};
constexpr ShuffleKernels kAvx2{
    "avx2",
    {unshuffle_avx2<2>, unshuffle_avx2<4>, unshuffle_avx2<8>, unshuffle_avx2<16>},
    {shuffle_avx2<2>, shuffle_avx2<4>, shuffle_avx2<8>, shuffle_avx2<16>},
    transpose_bits_avx2};

}  // namespace

const ShuffleKernels* shuffle_kernels_avx2() {
  return __builtin_cpu_supports("avx2") ? &kAvx2 : nullptr;
}

const ShuffleKernels* shuffle_kernels_sse2() { return &kSse2; }

}  // namespace headrace

#else

namespace headrace {

const ShuffleKernels* shuffle_kernels_avx2() { return nullptr; }
const ShuffleKernels* shuffle_kernels_sse2() { return nullptr; }

}  // namespace headrace

#endif
