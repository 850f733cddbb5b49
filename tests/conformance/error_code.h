#pragma once

#include <gtest/gtest.h>

#include <string>

#include "headrace/error.h"

namespace headrace {

// Of the error that `call` throws; a failure when there is none.
template <typename Function>
ErrorCode code_of(Function&& call, std::string* message = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (message) *message = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::io;
}

}  // namespace headrace
