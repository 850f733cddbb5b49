#pragma once

// What of an array is wanted and where each element lies in the caller's memory, cut down step by
// step: to the stored chunks, to the inner chunks of each shard, until one chunk is left.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/chunk_grid.h"
#include "format/selection.h"
#include "headrace/tensor.h"

namespace headrace {

// Along one dimension: element i has index `first + step * i` (or list[i]) in the chunk and lies
// `user_first + user_step * i` (or user_list[i]) bytes into the caller's memory.
struct Axis {
  std::int64_t count = 0;
  std::int64_t first = 0;
  std::int64_t step = 1;  // > 0
  std::ptrdiff_t user_first = 0;
  std::ptrdiff_t user_step = 0;
  const std::int64_t* list = nullptr;
  const std::int64_t* user_list = nullptr;  // as `list`, bytes
  bool list_ascending = true;
  std::int64_t extent = INT64_MAX;  // of the array, counted from the chunk's index 0
};

// A grid to cut by: an axis a dimension, and what is added to the coordinates of its cells.
struct GridCut {
  // Chunks of one shape; the first of them is `first_chunk`, empty for zeros.
  GridCut(const Shape& chunk, const Shape& first_chunk = {});  // NOLINT: a shape is a grid
  // The bands of a rectilinear grid, which is borrowed.
  explicit GridCut(const std::vector<ChunkEdges>& edges);

  std::vector<GridAxis> axes;
  Shape first;
};

class BoxCut;

// The outer product of its axes.
class Box {
 public:
  using Cut = BoxCut;

  Box() = default;
  // `user` is the caller's array in the selection's result shape. Lists are borrowed from
  // `selection`, which must outlive the box.
  Box(const ResolvedSelection& selection, const TensorView& user);
  Box(Box&&) = default;
  Box& operator=(Box&&) = default;

  std::vector<Axis> axes;
  std::byte* user = nullptr;
  std::size_t size() const;  // elements
  // The same elements one after another at `memory`. Borrows from this box.
  Box packed(std::byte* memory, std::size_t itemsize) const;

 private:
  std::vector<std::vector<std::int64_t>> user_lists_;
};

// A box cut by a grid.
class BoxCut {
 public:
  explicit BoxCut(const Box& box, GridCut grid);

  std::size_t size() const { return size_; }
  // Coordinates of the i-th chunk touched, in C order of the grid, and what is wanted of it. The
  // child borrows from this cut.
  void child(std::size_t i, std::int64_t* coordinates, Box& child) const;

 private:
  const Box& box_;
  Shape first_;
  std::vector<DimPlan> plans_;
  std::vector<std::vector<std::int64_t>> user_lists_;  // of dimensions with lists
  std::size_t size_ = 1;
};

class PointsCut;

// Any elements in any order.
class Points {
 public:
  using Cut = PointsCut;

  Points() = default;
  Points(const ResolvedSelection& selection, const TensorView& user);

  std::size_t ndim = 0;
  std::vector<std::int64_t> indices;        // ndim of each point
  std::vector<std::ptrdiff_t> user_offset;  // bytes
  Shape extent;                             // as an axis has it
  std::byte* user = nullptr;
  std::size_t size() const { return user_offset.size(); }
  Points packed(std::byte* memory, std::size_t itemsize) const;
};

class PointsCut {
 public:
  explicit PointsCut(const Points& points, GridCut grid);

  std::size_t size() const { return starts_.size() - 1; }
  void child(std::size_t i, std::int64_t* coordinates, Points& child) const;

 private:
  const Points& points_;
  GridCut grid_;
  std::vector<std::size_t> order_;   // points by chunk, stable
  std::vector<std::size_t> starts_;  // of each chunk's points in order_, and the end
};

}  // namespace headrace
