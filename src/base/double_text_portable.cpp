#include <locale.h>
#include <stdlib.h>

#include <cmath>
#include <string>

#include "base/double_text.h"

namespace headrace {
namespace {

const char* after_digits(const char* at, const char* last) {
  while (at != last && *at >= '0' && *at <= '9') ++at;
  return at;
}

// Where a number ends that begins at `first`; `first` where none does.
const char* end_of_number(const char* first, const char* last) {
  const char* const begin = first != last && *first == '-' ? first + 1 : first;
  const char* at = after_digits(begin, last);
  auto digits = at - begin;
  if (at != last && *at == '.') {
    const char* const end = after_digits(at + 1, last);
    digits += end - (at + 1);
    at = end;
  }
  if (digits == 0) return first;
  if (at == last || (*at != 'e' && *at != 'E')) return at;
  const char* exponent = at + 1;
  if (exponent != last && (*exponent == '-' || *exponent == '+')) ++exponent;
  const char* const end = after_digits(exponent, last);
  return end == exponent ? at : end;
}

// What strtod() takes for the point is the locale's.
class UsualLocale {
 public:
  UsualLocale() : before_(::uselocale(usual())) {}
  ~UsualLocale() { ::uselocale(before_); }
  UsualLocale(const UsualLocale&) = delete;
  UsualLocale& operator=(const UsualLocale&) = delete;

 private:
  static locale_t usual() {
    static const locale_t made = ::newlocale(LC_ALL_MASK, "C", locale_t{});
    return made;  // null, when memory is short: the thread's stays
  }

  locale_t before_;
};

}  // namespace

std::from_chars_result double_from_chars(const char* first, const char* last, double& value) {
  const char* const end = end_of_number(first, last);
  if (end == first) return {first, std::errc::invalid_argument};
  const std::string text(first, end);
  const UsualLocale usual;
  const double found = ::strtod(text.c_str(), nullptr);
  // Zero of digits that are not, too: there errno tells also of numbers that are merely small.
  const bool is_zero =
      text.substr(0, text.find_first_of("eE")).find_first_of("123456789") == std::string::npos;
  if (std::isinf(found) || (found == 0 && !is_zero)) return {end, std::errc::result_out_of_range};
  value = found;
  return {end, std::errc()};
}

}  // namespace headrace
