#pragma once

// Which parts of which chunks a selection needs, and where they go. Pure.

#include <cstdint>
#include <vector>

#include "format/selection.h"
#include "headrace/tensor.h"

namespace headrace {

// The part of one dimension's selection that falls into one chunk of that dimension.
struct DimPiece {
  std::int64_t chunk = 0;  // coordinate of the chunk along the dimension
  std::int64_t first = 0;  // index within the chunk of the first element, when a range
  std::int64_t step = 1;
  std::int64_t count = 0;
  std::int64_t result_first = 0;  // position along the dimension's result of the first element
  std::int64_t result_step = 1;   // +1, or -1 when reversed
  // For lists: positions in `order` [list_first, list_first + count) of the DimPlan.
  std::int64_t list_first = 0;
};

// One dimension cut at chunk borders.
struct DimPlan {
  bool is_list = false;
  std::vector<DimPiece> pieces;  // by ascending chunk
  // For lists, grouped by chunk: index within the chunk and position in the result.
  std::vector<std::int64_t> local_index;
  std::vector<std::int64_t> result_index;
  bool list_ascending = true;  // local_index ascends within every piece
};

DimPlan plan_dimension(const DimSelection& selection, std::int64_t chunk_extent);

// Chunks along each dimension: ceil(shape / chunk_shape), 0 for an extent of 0.
Shape grid_shape(const Shape& shape, const Shape& chunk_shape);

}  // namespace headrace
