#pragma once

#include "base/bytes.h"

namespace headrace {

// Reverses the bytes of each unit of 2, 4 or 8 bytes. dst may be src; both have n_units * unit
// bytes.
void swap_bytes(std::size_t unit, const std::byte* src, std::byte* dst, std::size_t n_units);

}  // namespace headrace
