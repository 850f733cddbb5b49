#include "store/reference/numbered_key.h"

#include <algorithm>

namespace headrace {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool split_numbered_key(std::string_view key, NumberedKey& into) {
  into.count = 0;
  into.separator = '\0';
  std::size_t end = key.size();
  char separator = '\0';
  // From the end, while what stands between two numbers stays the same.
  for (;;) {
    std::size_t start = end;
    std::uint64_t value = 0;
    std::uint64_t unit = 1;
    while (start > 0 && end - start < 11 && is_digit(key[start - 1])) {
      --start;
      value += unit * static_cast<std::uint64_t>(key[start] - '0');
      unit *= 10;
    }
    const std::size_t digits = end - start;
    if (digits == 0 || (digits > 1 && key[start] == '0') || value > UINT32_MAX) break;
    const char before = start > 0 ? key[start - 1] : '/';
    if (before != '.' && before != '/') break;
    into.numbers[into.count++] = static_cast<std::uint32_t>(value);
    into.stem = key.substr(0, start);
    if (into.count > 1) into.separator = separator;
    if (start == 0 || into.count == NumberedKey::kMaxNumbers) break;
    if (into.count > 1 && before != separator) break;
    separator = before;
    end = start - 1;
  }
  std::reverse(into.numbers.begin(), into.numbers.begin() + into.count);
  return into.count > 0;
}

void append_numbered_key(std::string& out, const NumberedKey& key) {
  out += key.stem;
  for (unsigned i = 0; i < key.count; ++i) {
    if (i > 0) out += key.separator;
    char digits[10];
    std::size_t n = 0;
    std::uint32_t value = key.numbers[i];
    do {
      digits[n++] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value > 0);
    while (n > 0) out += digits[--n];
  }
}

}  // namespace headrace
