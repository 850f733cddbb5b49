#pragma once

// From what a caller wrote to the indices meant along each dimension. Pure.

#include <cstdint>
#include <vector>

#include "format/chunk_edges.h"
#include "headrace/selection.h"
#include "headrace/tensor.h"

namespace headrace {

// The indices wanted along one dimension of the array, in the order of the result: a range with a
// positive step, or a list. Descending slices become ascending ones with `reversed` set.
struct DimSelection {
  std::int64_t start = 0;
  std::int64_t step = 1;  // > 0
  std::int64_t count = 0;
  bool reversed = false;  // the result runs from the last of the range to the first
  bool is_list = false;
  std::vector<std::int64_t> indices;  // when is_list: count of them, non-negative, any order

  std::int64_t index(std::int64_t i) const {
    return is_list ? indices[static_cast<std::size_t>(i)]
                   : start + step * (reversed ? count - 1 - i : i);
  }
};

struct ResolvedSelection {
  // Outer product of `dims`, or points when `pointwise`: then dims[d].indices are the d-th
  // coordinates of point 0, 1, ... (each is_list, all of equal count).
  bool pointwise = false;
  std::vector<DimSelection> dims;  // one a dimension of the array
  Shape array_shape;
  Shape result_shape;  // as NumPy or zarr-python gives it
  // For the outer product: the result axis of each array dimension, -1 when an integer removed it.
  // Result axes that no dimension has are new axes of extent 1.
  std::vector<int> result_axis;

  std::size_t size() const;  // elements of the result
};

// `out_of_bounds` (IndexError) for indices outside, too many or few dimensions, masks of the wrong
// shape, zero steps; `invalid_argument` for item kinds that a mode does not take. `chunks` and
// `edges`, of a rectilinear grid, count for block selections only.
ResolvedSelection resolve_selection(const Selection& selection,
                                    const Shape& shape,
                                    const Shape& chunks,
                                    const std::vector<ChunkEdges>& edges = {});

}  // namespace headrace
