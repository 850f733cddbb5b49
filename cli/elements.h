#pragma once

// Elements of a data type as C++ values.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "headrace/dtype.h"
#include "headrace/error.h"

namespace headrace::cli {

struct Float16 {
  std::uint16_t bits;
  operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fU;
    const std::uint32_t fraction = bits & 0x3ffU;
    if (exponent == 0)
      return std::copysign(std::ldexp(static_cast<float>(fraction), -24), sign ? -1.0F : 1.0F);
    const std::uint32_t wide = exponent == 0x1f ? 0xffU : exponent + 112;
    return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
  }
};

struct Bfloat16 {
  std::uint16_t bits;
  operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

template <typename T>
T load_element(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Calls visit(T{}) with the C++ type of a real number's data type; `unsupported` for others, with
// `what` wanted it. T{} is a tag: only its type counts.
template <typename Visit>
auto with_number_type(const DType& dtype, std::string_view what, Visit&& visit) {
  const std::size_t size = dtype.itemsize();
  switch (dtype.kind()) {
    case DType::Kind::boolean:
      return visit(std::uint8_t{});
    case DType::Kind::signed_integer:
      if (size == 1) return visit(std::int8_t{});
      if (size == 2) return visit(std::int16_t{});
      if (size == 4) return visit(std::int32_t{});
      return visit(std::int64_t{});
    case DType::Kind::unsigned_integer:
      if (size == 1) return visit(std::uint8_t{});
      if (size == 2) return visit(std::uint16_t{});
      if (size == 4) return visit(std::uint32_t{});
      return visit(std::uint64_t{});
    case DType::Kind::floating:
      if (size == 2) return visit(Float16{});
      if (size == 4) return visit(float{});
      return visit(double{});
    default:
      if (dtype == DType::bfloat16) return visit(Bfloat16{});
      throw Error(ErrorCode::unsupported, std::string(what) + ": not for " + dtype.to_string());
  }
}

}  // namespace headrace::cli
