#pragma once

#include <new>
#include <stdexcept>
#include <string>

#include "headrace/error.h"

namespace headrace {

// Calls body(). What the standard library raises for want of memory, and for a size that no memory
// has, becomes an `out_of_memory` of this library.
template <typename Body>
auto with_memory_errors(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "out of memory");
  } catch (const std::length_error& error) {
    throw Error(ErrorCode::out_of_memory, std::string("out of memory: ") + error.what());
  }
}

}  // namespace headrace
