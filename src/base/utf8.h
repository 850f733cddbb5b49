#pragma once

#include <cstddef>
#include <string_view>

namespace headrace {

// Bytes of the character that `text` begins with; 0 when there is none.
std::size_t utf8_character_nbytes(std::string_view text);

// Whether `text` is well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates.
bool is_utf8(std::string_view text);

}  // namespace headrace
