#pragma once

// Byte and bit transposes of arrays of elements, as the shuffle filter, blosc and bitshuffle use
// them. "Plane j" holds byte j of every element. Planes are given one by one so that a decoder can
// leave each where it found it, and by range so that it can stop at what is wanted.

#include <cstddef>

namespace headrace {

// Byte j of element i: dst[i * typesize + j] = planes[j][i], for n elements.
void unshuffle(const std::byte* const* planes, std::size_t typesize, std::size_t n, std::byte* dst);

// planes[j][i] = src[i * typesize + j].
void shuffle(const std::byte* src, std::size_t typesize, std::size_t n, std::byte* const* planes);

// Bit planes: bit k of byte j of element i is bit i % 8 of byte i / 8 of row 8 * j + k; rows follow
// one another, n / 8 bytes each. `n` and `first` are multiples of 8; `count` need not be.
// Gives the elements [first, first + count).
void bit_unshuffle(const std::byte* src,
                   std::size_t typesize,
                   std::size_t n,
                   std::size_t first,
                   std::size_t count,
                   std::byte* dst);

void bit_shuffle(const std::byte* src, std::size_t typesize, std::size_t n, std::byte* dst);

// The instruction set in use: "avx2", "sse2", "portable".
const char* shuffle_isa();
// For tests: the best of at most this set from now on.
void set_shuffle_isa(const char* isa);

}  // namespace headrace
