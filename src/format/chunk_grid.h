#pragma once

// Which parts of which chunks a selection needs, and where they go. Pure.

#include <cstdint>
#include <vector>

#include "format/chunk_edges.h"
#include "format/selection.h"
#include "headrace/tensor.h"

namespace headrace {

// How one dimension is cut: by chunks of one extent, or at the ends of bands.
class GridAxis {
 public:
  struct Cell {
    std::int64_t number;
    std::int64_t first;  // index
    std::int64_t end;
  };

  GridAxis(std::int64_t extent);                         // at least 1, else invalid_argument
  GridAxis(const ChunkEdges& edges) : edges_(&edges) {}  // borrowed
  Cell at(std::int64_t index) const {
    if (edges_) return at_run(index);
    const std::int64_t number = index / extent_;
    const std::int64_t first = number * extent_;
    std::int64_t end = 0;
    if (__builtin_add_overflow(first, extent_, &end)) end = INT64_MAX;
    return {number, first, end};
  }

 private:
  Cell at_run(std::int64_t index) const;

  std::int64_t extent_ = 0;
  const ChunkEdges* edges_ = nullptr;
};

// The part of one dimension's selection that falls into one chunk of that dimension.
struct DimPiece {
  std::int64_t chunk = 0;  // number of the cell along the dimension
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

DimPlan plan_dimension(const DimSelection& selection, const GridAxis& axis);

// Chunks along each dimension that hold elements of the array: none for an extent of 0.
// `edges`: of a rectilinear grid, else empty.
Shape grid_shape(const Shape& shape,
                 const Shape& chunk_shape,
                 const std::vector<ChunkEdges>& edges = {});

// Along each dimension the extents of the chunks that hold elements, the last one cut off at the
// end of the array. `out_of_memory` for more than memory can be expected to hold.
std::vector<Shape> chunk_sizes(const Shape& shape,
                               const Shape& chunk_shape,
                               const std::vector<ChunkEdges>& edges = {});

// The extents of one chunk.
Shape shape_of_chunk(const std::vector<std::int64_t>& coordinates,
                     const Shape& chunk_shape,
                     const std::vector<ChunkEdges>& edges);

}  // namespace headrace
