#pragma once

#include <bit>

#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

SIMT_HOST_DEVICE u32 choose_bits(bool condition, u32 yes, u32 no) {
  const u32 mask = 0u - static_cast<u32>(condition);
  return (yes & mask) | (no & ~mask);
}

// log(1 + x), the same bits on the host and on devices, where whoever compiles it for them has no
// product and sum fused. The logarithm of u = 1 + x by a polynomial around 1 in
// (log(1 + f) - f + f^2 / 2) / f^3, found by interpolation at Chebyshev's nodes, and what rounding
// u lost added. At most 1.3 units in the last place off. No branches, so that loops of it become
// vectors.
SIMT_HOST_DEVICE float log1p_of(float x) {
  constexpr float kCoefficients[] = {0.3333333134651184f,
                                     -0.2499999701976776f,
                                     0.20000715553760529f,
                                     -0.1666780263185501f,
                                     0.14249058067798615f,
                                     -0.12425687164068222f,
                                     0.11685419827699661f,
                                     -0.11479733884334564f,
                                     0.06971611827611923f};
  constexpr u32 kSqrtHalf = 0x3f3504f3u, kMantissa = 0x7fffffu;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -0.00021219444f;
  const float u = 1.0f + x;
  const float lost = (x - (u - 1.0f)) / u;
  const u32 shifted = std::bit_cast<u32>(u) - kSqrtHalf;
  const auto exponent = static_cast<float>(static_cast<i32>(shifted) >> 23);
  const float f = std::bit_cast<float>((shifted & kMantissa) + kSqrtHalf) - 1.0f;
  float tail = kCoefficients[8];
  SIMT_UNROLL
  for (int i = 7; i >= 0; --i) tail = tail * f + kCoefficients[i];
  tail = tail * f * (f * f) + exponent * kLn2Low - 0.5f * (f * f);
  const float result = f + tail + exponent * kLn2High + lost;
  // Bits, not comparisons of floats: those are branches to the compiler.
  constexpr u32 kInfinity = 0x7f800000u, kNan = 0x7fc00000u, kMinusOne = 0xbf800000u;
  const u32 bits = std::bit_cast<u32>(x);
  u32 chosen = std::bit_cast<u32>(result);
  chosen = choose_bits(bits == kInfinity, kInfinity, chosen);
  chosen = choose_bits(bits == kMinusOne, kInfinity | 0x80000000u, chosen);
  chosen = choose_bits(bits > kMinusOne, kNan, chosen);
  return std::bit_cast<float>(chosen);
}

}  // namespace headrace::SIMT_SPACE
