#include "base/double_text.h"

namespace headrace {

std::from_chars_result double_from_chars(const char* first, const char* last, double& value) {
  return std::from_chars(first, last, value);
}

}  // namespace headrace
