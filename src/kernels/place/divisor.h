#pragma once

#include <bit>

#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Division of numbers below 2^31 (Granlund and Montgomery 1994).
struct Divisor {
  u32 divisor = 1, factor = 0x80000000, shift = 31;
  SIMT_DEVICE u32 quotient(u32 n) const { return static_cast<u32>(u64{n} * factor >> shift); }
  bool operator==(const Divisor&) const = default;
};

inline Divisor make_divisor(u64 divisor) {
  const u32 shift = 31 + static_cast<u32>(std::bit_width(divisor - 1));
  return {static_cast<u32>(divisor),
          static_cast<u32>(((u64{1} << shift) + divisor - 1) / divisor),
          shift};
}

}  // namespace headrace::SIMT_SPACE
