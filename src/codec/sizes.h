#pragma once

#include <string>

#include "headrace/error.h"

namespace headrace {

// Every decode ends with this check, one way or another.
inline void check_decoded_size(std::size_t wanted, std::size_t found) {
  if (wanted == found) return;
  throw Error(ErrorCode::corrupt,
              "expected " + std::to_string(wanted) + " bytes, got " + std::to_string(found));
}

[[noreturn]] inline void throw_corrupt(const std::string& problem) {
  throw Error(ErrorCode::corrupt, problem);
}

}  // namespace headrace
