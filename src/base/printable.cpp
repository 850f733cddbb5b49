#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "headrace/error.h"

namespace headrace {
namespace {

void append_hex(std::string& text, std::uint32_t value, int digits) {
  constexpr char kHex[] = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += kHex[value >> shift & 15];
}

// Of a well-formed character of several bytes.
std::uint32_t code_point(std::string_view character) {
  auto point = static_cast<unsigned char>(character[0]) & (0xffU >> (character.size() + 1));
  for (const char c : character.substr(1))
    point = point << 6 | (static_cast<unsigned char>(c) & 0x3fU);
  return point;
}

// C1 controls, which some terminals obey as they do ESC; line and paragraph separators; marks that
// turn the direction of what follows (https://www.unicode.org/reports/tr9/) and so let a name read
// as another; and the invisible: the byte order mark, annotations, tags. Joiners, which scripts and
// emoji need, stay.
bool is_unsafe(std::uint32_t point) {
  const auto within = [point](std::uint32_t first, std::uint32_t last) {
    return point >= first && point <= last;
  };
  return within(0x80, 0x9f) || point == 0xad || point == 0x61c || point == 0x180e ||
         point == 0x200b || within(0x200e, 0x200f) || within(0x2028, 0x202e) ||
         within(0x2060, 0x206f) || point == 0xfeff || within(0xfff9, 0xfffb) ||
         within(0xe0000, 0xe007f);
}

void append_control(std::string& text, unsigned char c) {
  if (c == '\n') {
    text += "\\n";
  } else if (c == '\r') {
    text += "\\r";
  } else if (c == '\t') {
    text += "\\t";
  } else {
    text += "\\x";
    append_hex(text, c, 2);
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const std::size_t nbytes = utf8_character_nbytes(text);
    if (nbytes <= 1) {
      if (nbytes == 0 || first < 0x20 || first == 0x7f) {
        append_control(result, first);
      } else {
        result += text[0];
      }
      text.remove_prefix(1);
      continue;
    }
    const std::string_view character = text.substr(0, nbytes);
    if (const std::uint32_t point = code_point(character); !is_unsafe(point)) {
      result += character;
    } else {
      result += point > 0xffff ? "\\U" : "\\u";
      append_hex(result, point, point > 0xffff ? 8 : 4);
    }
    text.remove_prefix(nbytes);
  }
  return result;
}

}  // namespace headrace
