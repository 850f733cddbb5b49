#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "headrace/dtype.h"

namespace headrace {

// Floating types of 4 to 64 bits by their layout: sign, exponent, mantissa.
struct FloatLayout {
  enum class Special : std::uint8_t {
    ieee,  // the highest exponent is for infinities and NaN
    fn,    // finite: NaN is all ones but the sign
    fnuz,  // finite, unsigned zero: NaN is the pattern of -0
    none,  // neither infinities nor NaN
  };
  int bits = 0;
  int exponent_bits = 0;
  int mantissa_bits = 0;
  int bias = 0;
  bool has_sign = true;
  Special special = Special::ieee;
};

// Of the floating and ml_floating types.
FloatLayout float_layout(const DType& dtype);

// The nearest value, ties to even. Nothing when a type without infinity or NaN cannot say it.
std::optional<std::uint64_t> float_to_bits(const FloatLayout& layout, double value);
double float_from_bits(const FloatLayout& layout, std::uint64_t bits);
// Of an element of at most 8 bytes, in the machine's byte order.
std::uint64_t load_bits(const std::byte* in, std::size_t nbytes);

}  // namespace headrace
