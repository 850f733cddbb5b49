#pragma once

// Keys of chunks as numbers: "t2m/c/3/0/1" is the stem "t2m/c/" and the numbers 3, 0, 1. A table of
// millions of them keeps a stem once.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

struct NumberedKey {
  static constexpr std::size_t kMaxNumbers = 16;

  std::string_view stem{};
  char separator = '\0';  // of the numbers; of one number '\0'
  unsigned count = 0;
  std::array<std::uint32_t, kMaxNumbers> numbers{};
};

// Nothing but the key's own text comes of putting the parts together again: false for a key that
// does not end with a number, or with one that is written otherwise ("007") or past 2^32.
bool split_numbered_key(std::string_view key, NumberedKey& into);
void append_numbered_key(std::string& out, const NumberedKey& key);

}  // namespace headrace
