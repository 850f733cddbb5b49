#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/limits.h"
#include "headrace/tensor.h"

namespace headrace {

// Coordinates of a chunk, on the stack.
struct Coordinates {
  std::int64_t at[kMaxDimensions];
};

// "(3, 0, 12)".
std::string coordinates_text(const std::int64_t* coordinates, std::size_t ndim);

// As Python has it: "(3, 0)", "(5,)".
std::string shape_text(const Shape& shape);

// Position of `coordinates` in a grid, in C order.
std::int64_t linear_index(const std::int64_t* coordinates, const Shape& grid);

}  // namespace headrace
