#pragma once

// The bodies behind shuffle.h. Each does whole vectors of elements for one of the sizes 2, 4, 8 and
// 16 and gives the elements done; shuffle.cpp does the rest.

#include <cstddef>

namespace headrace {

using UnshuffleKernel = std::size_t (*)(const std::byte* const* planes,
                                        std::size_t n,
                                        std::byte* dst);
using ShuffleKernel = std::size_t (*)(const std::byte* src,
                                      std::size_t n,
                                      std::byte* const* planes);

// Transposes the 8x8 bits of each word of 8 bytes in place; gives the words done.
using TransposeBitsKernel = std::size_t (*)(std::byte* data, std::size_t n_words);

struct ShuffleKernels {
  const char* isa;
  UnshuffleKernel unshuffle[4];  // 2, 4, 8, 16
  ShuffleKernel shuffle[4];
  TransposeBitsKernel transpose_bits;  // may be null
};

// Null where the processor or the build lacks them.
const ShuffleKernels* shuffle_kernels_avx2();
const ShuffleKernels* shuffle_kernels_sse2();

}  // namespace headrace
