#include "base/utf8.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headrace {
std::size_t utf8_character_nbytes(std::string_view text) {
  const auto within = [](unsigned v, unsigned low, unsigned high) { return v >= low && v <= high; };
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  if (text.empty()) return 0;
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  std::size_t nbytes = 0;
  unsigned low = 0x80;  // what the second byte may be
  unsigned high = 0xBF;
  if (within(lead, 0xC2, 0xDF)) {
    nbytes = 2;
  } else if (within(lead, 0xE0, 0xEF)) {
    nbytes = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (within(lead, 0xF0, 0xF4)) {
    nbytes = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  }
  if (!within(byte(1), low, high)) return 0;
  for (std::size_t i = 2; i < nbytes; ++i) {
    if (!within(byte(i), 0x80, 0xBF)) return 0;
  }
  return nbytes;
}

bool is_utf8(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  while (!text.empty()) {
    std::uint64_t word = kHighBits;
    if (text.size() >= sizeof word) std::memcpy(&word, text.data(), sizeof word);
    const std::size_t nbytes = (word & kHighBits) == 0 ? sizeof word : utf8_character_nbytes(text);
    if (nbytes == 0) return false;
    text.remove_prefix(nbytes);
  }
  return true;
}

}  // namespace headrace
