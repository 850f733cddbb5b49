#pragma once

#include <string>

#include "headrace/tensor.h"

namespace headrace::cli {

// What stands before the elements in an .npy file, for C order.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
std::string npy_header(const DType& dtype, const Shape& shape);

}  // namespace headrace::cli
