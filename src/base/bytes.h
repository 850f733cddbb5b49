#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace headrace {

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// Unaligned loads and stores of stored integers.
template <std::unsigned_integral T>
T byteswap(T v) {
  if constexpr (sizeof(T) == 1) {
    return v;
  } else if constexpr (sizeof(T) == 2) {
    return __builtin_bswap16(v);
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bswap32(v);
  } else {
    return __builtin_bswap64(v);
  }
}

template <std::unsigned_integral T>
T load_le(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return std::endian::native == std::endian::little ? v : byteswap(v);
}

template <std::unsigned_integral T>
void store_le(std::byte* p, T v) {
  if constexpr (std::endian::native == std::endian::big) v = byteswap(v);
  std::memcpy(p, &v, sizeof v);
}

inline const char* as_chars(ConstBytes b) { return reinterpret_cast<const char*>(b.data()); }
inline char* as_chars(MutableBytes b) { return reinterpret_cast<char*>(b.data()); }
inline ConstBytes bytes_of(std::string_view s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}
inline std::string_view text_of(ConstBytes b) { return {as_chars(b), b.size()}; }

}  // namespace headrace
