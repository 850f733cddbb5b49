#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace headrace {

std::uint32_t crc32c(ConstBytes bytes);  // Castagnoli, RFC 3720
// Of bytes behind others, of which it is `before`.
std::uint32_t crc32c_after(std::uint32_t before, ConstBytes bytes);

}  // namespace headrace
