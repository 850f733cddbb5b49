#pragma once

#include <charconv>

namespace headrace {

// std::from_chars() of a decimal number, in whatever locale. The C++ library of macOS has had none
// for double for long.
std::from_chars_result double_from_chars(const char* first, const char* last, double& value);

}  // namespace headrace
