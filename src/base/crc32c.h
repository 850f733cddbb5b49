#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace headrace {

std::uint32_t crc32c(ConstBytes bytes);  // Castagnoli, RFC 3720

}  // namespace headrace
