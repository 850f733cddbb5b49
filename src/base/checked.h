#pragma once

// Arithmetic on sizes that come from outside. Overflow is an error, never a wrap.

#include <concepts>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "headrace/error.h"

namespace headrace {

template <std::integral T>
T checked_mul(T a, T b, const char* what) {
  T r;
  if (__builtin_mul_overflow(a, b, &r)) {
    throw Error(
        ErrorCode::invalid_argument,
        std::string(what) + ": " + std::to_string(a) + " * " + std::to_string(b) + " overflows");
  }
  return r;
}

template <std::integral T>
T checked_add(T a, T b, const char* what) {
  T r;
  if (__builtin_add_overflow(a, b, &r)) {
    throw Error(
        ErrorCode::invalid_argument,
        std::string(what) + ": " + std::to_string(a) + " + " + std::to_string(b) + " overflows");
  }
  return r;
}

template <std::integral To, std::integral From>
To checked_cast(From v, const char* what) {
  if (!std::in_range<To>(v)) {
    throw Error(ErrorCode::invalid_argument,
                std::string(what) + ": " + std::to_string(v) + " is out of range");
  }
  return static_cast<To>(v);
}

// Product of a shape's extents times the item size.
template <typename Extents>
std::size_t checked_nbytes(const Extents& shape, std::size_t itemsize, const char* what) {
  std::size_t n = itemsize;
  bool zero = false;
  for (auto extent : shape) {
    zero |= extent == 0;
    if (extent != 0) n = checked_mul(n, checked_cast<std::size_t>(extent, what), what);
  }
  return zero ? 0 : n;
}

}  // namespace headrace
