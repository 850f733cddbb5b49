#pragma once

#include <cstddef>
#include <cstring>

#include "base/bytes.h"

namespace headrace {

namespace detail {

template <std::size_t N>
void copy_units(std::byte* dst,
                std::ptrdiff_t dst_step,
                const std::byte* src,
                std::ptrdiff_t src_step,
                std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(dst, src, N);
    dst += dst_step;
    src += src_step;
  }
}

}  // namespace detail

// `count` units of `unit` bytes, each side with a step of its own in bytes.
inline void copy_units(std::byte* dst,
                       std::ptrdiff_t dst_step,
                       const std::byte* src,
                       std::ptrdiff_t src_step,
                       std::size_t unit,
                       std::size_t count) {
  switch (unit) {
    case 1:
      return detail::copy_units<1>(dst, dst_step, src, src_step, count);
    case 2:
      return detail::copy_units<2>(dst, dst_step, src, src_step, count);
    case 4:
      return detail::copy_units<4>(dst, dst_step, src, src_step, count);
    case 8:
      return detail::copy_units<8>(dst, dst_step, src, src_step, count);
    case 16:
      return detail::copy_units<16>(dst, dst_step, src, src_step, count);
    default:
      break;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(dst, src, unit);
    dst += dst_step;
    src += src_step;
  }
}

// Repeats `element` over nbytes, which is a multiple of its size.
inline void fill_bytes(std::byte* dst, std::size_t nbytes, ConstBytes element) {
  if (nbytes == 0) return;
  bool uniform = true;
  for (std::byte b : element) uniform &= b == element[0];
  if (uniform) {
    std::memset(dst, static_cast<int>(element[0]), nbytes);
    return;
  }
  std::memcpy(dst, element.data(), element.size());
  for (std::size_t done = element.size(); done < nbytes;) {
    const std::size_t n = done < nbytes - done ? done : nbytes - done;
    std::memcpy(dst + done, dst, n);
    done += n;
  }
}

}  // namespace headrace
