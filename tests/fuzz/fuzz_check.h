#pragma once

// What every target holds true.

#include <cstdlib>

#include "headrace/error.h"

namespace headrace::fuzz {

inline void check(bool holds) {
  if (!holds) std::abort();
}

// What hostile bytes may raise; anything else is a bug.
template <typename F>
bool attempt(F&& call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    check(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported);
    return false;
  }
}

}  // namespace headrace::fuzz
