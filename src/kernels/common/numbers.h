#pragma once

// Numbers of any type by their bits (the low ones of 64), converted and added as
// src/codec/elements.h does it on x86: bit for bit, NaNs included, of which a GPU keeps nothing by
// itself.

#include <bit>

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

SIMT_HOST_DEVICE constexpr bool is_floating(Number type) { return type >= Number::float16; }
SIMT_HOST_DEVICE constexpr bool is_signed(Number type) {
  return type >= Number::int8 && type <= Number::int64;
}
SIMT_HOST_DEVICE constexpr u32 nbytes_of(Number type) {
  if (type == Number::bfloat16) return 2;
  if (is_floating(type)) return 2u << (static_cast<u32>(type) - static_cast<u32>(Number::float16));
  if (type == Number::boolean) return 1;
  return 1u << (static_cast<u32>(type) - static_cast<u32>(Number::int8)) % 4;
}

SIMT_DEVICE u64 reverse_number(u64 bits, u32 nbytes) {
  const u64 reversed = u64{simt::permute_bytes(static_cast<u32>(bits), 0, 0x0123)} << 32 |
                       simt::permute_bytes(static_cast<u32>(bits >> 32), 0, 0x0123);
  return reversed >> (64 - 8 * nbytes);
}

// At any address.
SIMT_DEVICE u64 load_number(const u8* p, NumberFormat format) {
  const u32 nbytes = nbytes_of(format.type);
  u64 bits = 0;
  if (reinterpret_cast<std::uintptr_t>(p) % nbytes != 0) {
    for (u32 i = 0; i < nbytes; ++i) bits |= u64{simt::load_constant(p + i)} << 8 * i;
  } else if (nbytes == 1) {
    bits = simt::load_constant(p);
  } else if (nbytes == 2) {
    bits = simt::load_constant(reinterpret_cast<const u16*>(p));
  } else if (nbytes == 4) {
    bits = simt::load_constant(reinterpret_cast<const u32*>(p));
  } else {
    bits = simt::load_constant(reinterpret_cast<const u64*>(p));
  }
  return format.swapped ? reverse_number(bits, nbytes) : bits;
}

SIMT_DEVICE void store_number(u8* p, NumberFormat format, u64 bits) {
  const u32 nbytes = nbytes_of(format.type);
  if (format.swapped) bits = reverse_number(bits, nbytes);
  if (reinterpret_cast<std::uintptr_t>(p) % nbytes != 0) {
    for (u32 i = 0; i < nbytes; ++i) p[i] = static_cast<u8>(bits >> 8 * i);
  } else if (nbytes == 1) {
    *p = static_cast<u8>(bits);
  } else if (nbytes == 2) {
    *reinterpret_cast<u16*>(p) = static_cast<u16>(bits);
  } else if (nbytes == 4) {
    *reinterpret_cast<u32*>(p) = static_cast<u32>(bits);
  } else {
    *reinterpret_cast<u64*>(p) = bits;
  }
}

// ---- Floats

inline constexpr u64 kDoubleInfinity = u64{0x7ff} << 52;
inline constexpr u64 kDoubleQuiet = u64{1} << 51;
inline constexpr u32 kFloatInfinity = u32{0xff} << 23;
inline constexpr u32 kFloatQuiet = u32{1} << 22;

SIMT_HOST_DEVICE bool is_nan(double v) { return v != v; }
SIMT_HOST_DEVICE bool is_nan(float v) { return v != v; }

SIMT_HOST_DEVICE double float_to_double(float v) {
  if (!is_nan(v)) return v;
  const u32 bits = std::bit_cast<u32>(v);
  const u64 sign = u64{bits >> 31} << 63;
  return std::bit_cast<double>(sign | kDoubleInfinity | kDoubleQuiet | u64{bits & 0x7fffff} << 29);
}

SIMT_HOST_DEVICE float double_to_float(double v) {
  if (!is_nan(v)) return static_cast<float>(v);
  const u64 bits = std::bit_cast<u64>(v);
  const u32 sign = static_cast<u32>(bits >> 63) << 31;
  return std::bit_cast<float>(sign | kFloatInfinity | kFloatQuiet |
                              (static_cast<u32>(bits >> 29) & 0x7fffff));
}

SIMT_HOST_DEVICE float half_to_float(u16 half) {
  const u32 sign = static_cast<u32>(half & 0x8000) << 16;
  const u32 exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<u32>(static_cast<float>(mantissa) * 0x1p-24f));
  const u32 biased = exponent == 31 ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | biased << 23 | mantissa << 13);
}

// To nearest, ties to even.
SIMT_HOST_DEVICE u16 double_to_half(double v) {
  const u64 bits = std::bit_cast<u64>(v), sign = bits >> 48 & 0x8000;
  u64 magnitude = bits & ~(u64{1} << 63), half = 0;
  if (magnitude >= kDoubleInfinity) {
    half = 0x7c00 | (magnitude > kDoubleInfinity ? 0x200 | (magnitude >> 42 & 0x3ff) : 0);
  } else if (magnitude >= std::bit_cast<u64>(65520.0)) {
    half = 0x7c00;
  } else if (magnitude < std::bit_cast<u64>(0x1p-14)) {
    // Adding 2^52 rounds to whole numbers.
    const double scaled = std::bit_cast<double>(magnitude) * 0x1p24 + 0x1p52;
    half = std::bit_cast<u64>(scaled) & 0xffff;
  } else {
    magnitude += (u64{1} << 41) - 1 + (magnitude >> 42 & 1);
    half = (magnitude >> 42) - (u64{1023 - 15} << 10);
  }
  return static_cast<u16>(sign | half);
}

// What x86 makes a NaN of: the first operand's, else the second's, else a negative one. (Of two
// NaNs a compiler may take either.)
SIMT_HOST_DEVICE double x86_result(double result, double a, double b) {
  if (!is_nan(result)) return result;
  const u64 bits = is_nan(a)   ? std::bit_cast<u64>(a)
                   : is_nan(b) ? std::bit_cast<u64>(b)
                               : u64{1} << 63 | kDoubleInfinity;
  return std::bit_cast<double>(bits | kDoubleQuiet);
}
SIMT_HOST_DEVICE float x86_result(float result, float a, float b) {
  if (!is_nan(result)) return result;
  const u32 bits = is_nan(a)   ? std::bit_cast<u32>(a)
                   : is_nan(b) ? std::bit_cast<u32>(b)
                               : u32{1} << 31 | kFloatInfinity;
  return std::bit_cast<float>(bits | kFloatQuiet);
}

// f(a, b) of the numbers; float16 computes in float and is rounded afterwards.
template <class F>
SIMT_HOST_DEVICE u64 compute_floating(Number type, u64 a, u64 b, F f) {
  if (type == Number::float64) {
    const double x = std::bit_cast<double>(a), y = std::bit_cast<double>(b);
    return std::bit_cast<u64>(x86_result(f(x, y), x, y));
  }
  const bool is_half = type == Number::float16;
  const float x =
      is_half ? half_to_float(static_cast<u16>(a)) : std::bit_cast<float>(static_cast<u32>(a));
  const float y =
      is_half ? half_to_float(static_cast<u16>(b)) : std::bit_cast<float>(static_cast<u32>(b));
  const float result = x86_result(f(x, y), x, y);
  return is_half ? double_to_half(float_to_double(result)) : std::bit_cast<u32>(result);
}

struct Sum {
  template <class T>
  SIMT_HOST_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
struct Quotient {
  template <class T>
  SIMT_HOST_DEVICE T operator()(T a, T b) const {
    return a / b;
  }
};

// ---- Conversions

// What is out of range becomes the least number, and of that the low bits.
SIMT_HOST_DEVICE u64 double_to_integer(double v, Number type) {
  if (type == Number::uint64 && v >= 0x1p63 && v < 0x1p64) return static_cast<u64>(v);
  if (nbytes_of(type) < 4 || type == Number::int32)
    return static_cast<u32>(v > -0x1p31 - 1 && v < 0x1p31 ? static_cast<i32>(v) : INT32_MIN);
  return static_cast<u64>(v > -0x1p63 && v < 0x1p63 ? static_cast<i64>(v) : INT64_MIN);
}

SIMT_HOST_DEVICE u64 convert_double(double v, Number to) {
  switch (to) {
    case Number::boolean:
      return v != 0;
    case Number::float16:
      return double_to_half(v);
    case Number::float32:
      return std::bit_cast<u32>(double_to_float(v));
    case Number::float64:
      return std::bit_cast<u64>(v);
    default:
      return double_to_integer(v, to);
  }
}

template <class T>
SIMT_HOST_DEVICE u64 convert_integer(T v, Number to) {
  switch (to) {
    case Number::boolean:
      return v != 0;
    case Number::float16:
      return double_to_half(static_cast<double>(v));
    case Number::float32:
      return std::bit_cast<u32>(static_cast<float>(v));
    case Number::float64:
      return std::bit_cast<u64>(static_cast<double>(v));
    default:
      return static_cast<u64>(v);
  }
}

// The bits above those of `to` are arbitrary.
SIMT_HOST_DEVICE u64 convert(u64 bits, Number from, Number to) {
  if (from == to) return bits;
  switch (from) {
    case Number::boolean:
      return convert_integer(u64{(bits & 255) != 0}, to);
    case Number::float16:
      // Not by double, which makes NaNs quiet.
      if (to == Number::float32) return std::bit_cast<u32>(half_to_float(static_cast<u16>(bits)));
      return convert_double(float_to_double(half_to_float(static_cast<u16>(bits))), to);
    case Number::float32:
      return convert_double(float_to_double(std::bit_cast<float>(static_cast<u32>(bits))), to);
    case Number::float64:
      return convert_double(std::bit_cast<double>(bits), to);
    default: {
      const u32 unused = 64 - 8 * nbytes_of(from);
      if (is_signed(from)) return convert_integer(static_cast<i64>(bits << unused) >> unused, to);
      return convert_integer(bits << unused >> unused, to);
    }
  }
}

}  // namespace headrace::SIMT_SPACE
