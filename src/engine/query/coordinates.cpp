#include "engine/query/coordinates.h"

namespace headrace {

std::string coordinates_text(const std::int64_t* coordinates, std::size_t ndim) {
  std::string text = "(";
  for (std::size_t d = 0; d < ndim; ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(coordinates[d]);
  }
  return text + ")";
}

std::string shape_text(const Shape& shape) {
  std::string text = coordinates_text(shape.data(), shape.size());
  if (shape.size() == 1) text.insert(text.size() - 1, ",");
  return text;
}

std::int64_t linear_index(const std::int64_t* coordinates, const Shape& grid) {
  std::int64_t index = 0;
  for (std::size_t d = 0; d < grid.size(); ++d) index = index * grid[d] + coordinates[d];
  return index;
}

}  // namespace headrace
