#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headrace {

// "1 extent", "2 extents".
inline std::string counted(std::size_t n, std::string_view noun) {
  return std::to_string(n) + ' ' + std::string(noun) + (n == 1 ? "" : "s");
}

}  // namespace headrace
