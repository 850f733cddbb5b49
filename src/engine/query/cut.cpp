#include "engine/query/cut.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace headrace {

Box::Box(const ResolvedSelection& selection, const TensorView& view)
    : axes(selection.dims.size()), user(static_cast<std::byte*>(view.data)) {
  const Shape strides = view.strides_or_c();
  user_lists_.resize(axes.size());
  for (std::size_t d = 0; d < axes.size(); ++d) {
    const DimSelection& dim = selection.dims[d];
    const int result = selection.result_axis[d];
    const std::ptrdiff_t stride = result < 0 ? 0 : strides[static_cast<std::size_t>(result)];
    Axis& axis = axes[d];
    axis.extent = selection.array_shape[d];
    axis.count = dim.count;
    axis.first = dim.start;
    axis.step = dim.step;
    axis.user_first = dim.reversed ? stride * (dim.count - 1) : 0;
    axis.user_step = dim.reversed ? -stride : stride;
    if (dim.is_list) {
      std::vector<std::int64_t>& offsets = user_lists_[d];
      offsets.resize(dim.indices.size());
      for (std::size_t i = 0; i < offsets.size(); ++i) {
        offsets[i] = stride * static_cast<std::int64_t>(i);
      }
      axis.list = dim.indices.data();
      axis.user_list = offsets.data();
    }
  }
}

std::size_t Box::size() const {
  std::size_t n = 1;
  for (const Axis& axis : axes) n *= static_cast<std::size_t>(axis.count);
  return n;
}

Box Box::packed(std::byte* memory, std::size_t itemsize) const {
  Box result;
  result.axes = axes;
  result.user = memory;
  result.user_lists_.resize(axes.size());
  auto stride = static_cast<std::ptrdiff_t>(itemsize);
  for (std::size_t d = axes.size(); d-- > 0;) {
    Axis& axis = result.axes[d];
    axis.user_first = 0;
    axis.user_step = stride;
    if (axis.list) {
      std::vector<std::int64_t>& offsets = result.user_lists_[d];
      for (std::int64_t i = 0; i < axis.count; ++i) offsets.push_back(stride * i);
      axis.user_list = offsets.data();
    }
    stride *= axis.count;
  }
  return result;
}

GridCut::GridCut(const Shape& chunk, const Shape& first_chunk)
    : axes(chunk.begin(), chunk.end()), first(first_chunk) {
  first.resize(chunk.size());
}

GridCut::GridCut(const std::vector<ChunkEdges>& edges)
    : axes(edges.begin(), edges.end()), first(edges.size()) {}

BoxCut::BoxCut(const Box& box, GridCut grid) : box_(box), first_(std::move(grid.first)) {
  const std::size_t ndim = box.axes.size();
  plans_.reserve(ndim);
  user_lists_.resize(ndim);
  for (std::size_t d = 0; d < ndim; ++d) {
    const Axis& axis = box.axes[d];
    DimSelection selection;
    selection.start = axis.first;
    selection.step = axis.step;
    selection.count = axis.count;
    if (axis.list) {
      selection.is_list = true;
      selection.indices.assign(axis.list, axis.list + axis.count);
    }
    plans_.push_back(plan_dimension(selection, grid.axes[d]));
    const DimPlan& plan = plans_.back();
    if (plan.is_list) {
      for (std::int64_t position : plan.result_index) {
        user_lists_[d].push_back(axis.user_list[position]);
      }
    }
    size_ *= plan.pieces.size();
  }
}

namespace {

// The parent's index that is index 0 of a piece's cell.
std::int64_t cell_first(const Axis& parent, const DimPlan& plan, const DimPiece& piece) {
  if (!plan.is_list) return parent.first + parent.step * piece.result_first - piece.first;
  const auto i = static_cast<std::size_t>(piece.list_first);
  return parent.list[plan.result_index[i]] - plan.local_index[i];
}

}  // namespace

void BoxCut::child(std::size_t i, std::int64_t* coordinates, Box& child) const {
  child.axes.resize(plans_.size());
  child.user = box_.user;
  for (std::size_t d = plans_.size(); d-- > 0;) {
    const DimPlan& plan = plans_[d];
    const DimPiece& piece = plan.pieces[i % plan.pieces.size()];
    i /= plan.pieces.size();
    coordinates[d] = first_[d] + piece.chunk;
    const Axis& parent = box_.axes[d];
    Axis& axis = child.axes[d];
    axis = {};
    axis.count = piece.count;
    axis.extent = parent.extent - cell_first(parent, plan, piece);
    if (!plan.is_list) {
      axis.first = piece.first;
      axis.step = piece.step;
      axis.user_first = parent.user_first + parent.user_step * piece.result_first;
      axis.user_step = parent.user_step * piece.result_step;
    } else if (piece.count == 1) {  // as good as a range
      axis.first = plan.local_index[static_cast<std::size_t>(piece.list_first)];
      axis.user_first = user_lists_[d][static_cast<std::size_t>(piece.list_first)];
    } else {
      axis.list = plan.local_index.data() + piece.list_first;
      axis.user_list = user_lists_[d].data() + piece.list_first;
      axis.list_ascending = plan.list_ascending;
    }
  }
}

Points::Points(const ResolvedSelection& selection, const TensorView& view)
    : ndim(selection.dims.size()),
      extent(selection.array_shape),
      user(static_cast<std::byte*>(view.data)) {
  const std::size_t n = selection.size();
  const Shape strides = view.strides_or_c();
  indices.resize(n * ndim);
  for (std::size_t d = 0; d < ndim; ++d) {
    for (std::size_t i = 0; i < n; ++i) indices[i * ndim + d] = selection.dims[d].indices[i];
  }
  user_offset.resize(n);
  Shape at(selection.result_shape.size(), 0);
  std::ptrdiff_t offset = 0;
  for (std::size_t i = 0; i < n; ++i) {
    user_offset[i] = offset;
    for (std::size_t d = at.size(); d-- > 0;) {
      offset += strides[d];
      if (++at[d] < selection.result_shape[d]) break;
      offset -= strides[d] * at[d];
      at[d] = 0;
    }
  }
}

Points Points::packed(std::byte* memory, std::size_t itemsize) const {
  Points result;
  result.ndim = ndim;
  result.indices = indices;
  result.extent = extent;
  result.user = memory;
  result.user_offset.resize(size());
  for (std::size_t i = 0; i < size(); ++i)
    result.user_offset[i] = static_cast<std::ptrdiff_t>(i * itemsize);
  return result;
}

PointsCut::PointsCut(const Points& points, GridCut grid)
    : points_(points), grid_(std::move(grid)), order_(points.size()) {
  const std::size_t ndim = points.ndim;
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  // Compares chunk coordinates, not their linear number: that could overflow in a huge grid.
  auto chunk_of = [&](std::size_t point, std::size_t d) {
    return grid_.axes[d].at(points.indices[point * ndim + d]).number;
  };
  auto compare = [&](std::size_t a, std::size_t b) {
    for (std::size_t d = 0; d < ndim; ++d) {
      const std::int64_t x = chunk_of(a, d);
      const std::int64_t y = chunk_of(b, d);
      if (x != y) return x < y ? -1 : 1;
    }
    return 0;
  };
  std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) { return compare(a, b) < 0; });
  for (std::size_t i = 0; i < order_.size(); ++i) {
    if (i == 0 || compare(order_[i - 1], order_[i]) != 0) starts_.push_back(i);
  }
  starts_.push_back(order_.size());
}

void PointsCut::child(std::size_t i, std::int64_t* coordinates, Points& child) const {
  const std::size_t ndim = points_.ndim;
  const std::size_t first = starts_[i];
  const std::size_t n = starts_[i + 1] - first;
  child.ndim = ndim;
  child.user = points_.user;
  child.indices.resize(n * ndim);
  child.user_offset.resize(n);
  child.extent.resize(ndim);
  Shape origin(ndim);
  for (std::size_t d = 0; d < ndim; ++d) {
    const GridAxis::Cell cell = grid_.axes[d].at(points_.indices[order_[first] * ndim + d]);
    coordinates[d] = grid_.first[d] + cell.number;
    origin[d] = cell.first;
    child.extent[d] = points_.extent[d] - cell.first;
  }
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t point = order_[first + k];
    child.user_offset[k] = points_.user_offset[point];
    for (std::size_t d = 0; d < ndim; ++d) {
      child.indices[k * ndim + d] = points_.indices[point * ndim + d] - origin[d];
    }
  }
}

}  // namespace headrace
