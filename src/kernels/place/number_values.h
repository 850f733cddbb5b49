#pragma once

// Numbers of any type as floats to compute with, bfloat16 too, and back: what the gathers of
// batches do, and src/loader/conversions.cpp on the host, bit for bit but for the payload of NaNs.

#include <bit>
#include <type_traits>

#include "kernels/common/numbers.h"

namespace headrace::SIMT_SPACE {

SIMT_DEVICE float bfloat16_to_float(u64 bits) {
  return std::bit_cast<float>(static_cast<u32>(bits) << 16);
}

// To nearest, ties to even.
SIMT_DEVICE u64 float_to_bfloat16(float value) {
  const u32 bits = std::bit_cast<u32>(value);
  if (is_nan(value)) return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

template <class Compute>
SIMT_DEVICE Compute value_of(u64 bits, Number type) {
  if (type == Number::bfloat16) return bfloat16_to_float(bits);
  if constexpr (std::is_same_v<Compute, double>)
    return std::bit_cast<double>(convert(bits, type, Number::float64));
  else
    return std::bit_cast<float>(static_cast<u32>(convert(bits, type, Number::float32)));
}

SIMT_DEVICE u64 bits_of(float value, Number type) {
  if (type == Number::bfloat16) return float_to_bfloat16(value);
  if (type == Number::float32) return std::bit_cast<u32>(value);
  return convert_double(float_to_double(value), type);
}
SIMT_DEVICE u64 bits_of(double value, Number type) {
  if (type == Number::bfloat16) return float_to_bfloat16(double_to_float(value));
  return convert_double(value, type);
}

// Of 32 bits and more: float has too few.
SIMT_HOST_DEVICE constexpr bool is_wide(Number type) {
  return type == Number::float64 || (!is_floating(type) && nbytes_of(type) >= 4);
}

}  // namespace headrace::SIMT_SPACE
