#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace headrace {

// The standard alphabet with padding, RFC 4648.
std::string base64_encode(ConstBytes bytes);
std::optional<std::vector<std::byte>> base64_decode(std::string_view text);

}  // namespace headrace
