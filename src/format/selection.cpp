#include "format/selection.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/checked.h"
#include "format/chunk_grid.h"

namespace headrace {
namespace {

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

[[noreturn]] void fail_bounds(const std::string& message) {
  throw Error(ErrorCode::out_of_bounds, message);
}

[[noreturn]] void fail_kind(SelectionMode mode, const char* what) {
  const char* name = mode == SelectionMode::basic        ? "basic"
                     : mode == SelectionMode::orthogonal ? "orthogonal"
                     : mode == SelectionMode::coordinate ? "coordinate"
                                                         : "block";
  throw Error(ErrorCode::invalid_argument,
              std::string(mode == SelectionMode::orthogonal ? "an " : "a ") + name +
                  " selection takes no " + what);
}

std::int64_t wrap_index(std::int64_t index, std::int64_t extent, std::size_t axis) {
  const std::int64_t wrapped = index < 0 ? index + extent : index;
  if (wrapped < 0 || wrapped >= extent) {
    fail_bounds("index " + std::to_string(index) + " is out of bounds for axis " +
                std::to_string(axis) + " with size " + std::to_string(extent));
  }
  return wrapped;
}

DimSelection single(std::int64_t index) {
  DimSelection dim;
  dim.start = index;
  dim.count = 1;
  return dim;
}

// Python's slice.indices(), then turned to ascend.
DimSelection resolve_slice(const Slice& slice, std::int64_t extent) {
  if (slice.step == 0) fail_bounds("slice step cannot be zero");
  const std::int64_t step = std::max(slice.step, -std::numeric_limits<std::int64_t>::max());
  const bool down = step < 0;
  const std::int64_t lowest = down ? -1 : 0;
  const std::int64_t highest = down ? extent - 1 : extent;
  const auto clamp = [&](std::int64_t v) {
    return std::clamp(v < 0 ? v + extent : v, lowest, highest);
  };
  const std::int64_t start = slice.start ? clamp(*slice.start) : (down ? highest : lowest);
  const std::int64_t stop = slice.stop ? clamp(*slice.stop) : (down ? lowest : highest);

  DimSelection dim;
  const std::int64_t span = down ? start - stop : stop - start;
  const std::int64_t stride = down ? -step : step;
  if (span <= 0) return dim;
  dim.count = (span - 1) / stride + 1;
  dim.step = dim.count == 1 ? 1 : stride;  // so that start + step stays in range
  dim.reversed = down && dim.count > 1;
  dim.start = down ? start - stride * (dim.count - 1) : start;
  return dim;
}

std::size_t element_count(const Shape& shape, const char* what) {
  for (std::int64_t extent : shape) {
    if (extent < 0)
      throw Error(ErrorCode::invalid_argument, std::string(what) + ": negative extent");
  }
  return checked_nbytes(shape, 1, what);
}

void check_values(std::size_t found, const Shape& shape, const char* what) {
  const std::size_t wanted = element_count(shape, what);
  if (found != wanted) {
    throw Error(ErrorCode::invalid_argument,
                std::string(what) + ": shape asks for " + std::to_string(wanted) +
                    " values, found " + std::to_string(found));
  }
}

// A list that is an ascending range after all becomes one: ranges are planned and copied in runs.
void list_to_range(DimSelection& dim) {
  const std::vector<std::int64_t>& list = dim.indices;
  if (list.size() < 2 || list[1] <= list[0]) return;
  const std::int64_t step = list[1] - list[0];
  for (std::size_t i = 2; i < list.size(); ++i) {
    if (list[i] - list[i - 1] != step) return;
  }
  dim.start = list[0];
  dim.step = step;
  dim.is_list = false;
  dim.indices.clear();
}

DimSelection resolve_list(const IndexArray& array, std::int64_t extent, std::size_t axis) {
  check_values(array.indices.size(), array.shape, "index array");
  if (array.shape.empty()) return single(wrap_index(array.indices[0], extent, axis));
  if (array.shape.size() != 1) {
    fail_bounds("axis " + std::to_string(axis) +
                ": an orthogonal selection takes index arrays of 1 "
                "dimension, found " +
                std::to_string(array.shape.size()));
  }
  DimSelection dim;
  dim.is_list = true;
  dim.count = static_cast<std::int64_t>(array.indices.size());
  dim.indices.reserve(array.indices.size());
  for (std::int64_t index : array.indices) dim.indices.push_back(wrap_index(index, extent, axis));
  list_to_range(dim);
  return dim;
}

DimSelection resolve_mask(const Mask& mask, std::int64_t extent, std::size_t axis) {
  check_values(mask.values.size(), mask.shape, "mask");
  if (mask.shape != Shape{extent}) {
    fail_bounds("axis " + std::to_string(axis) + ": expected a mask of shape (" +
                std::to_string(extent) + ",), found " + std::to_string(mask.shape.size()) +
                " dimensions and " + std::to_string(mask.values.size()) + " values");
  }
  DimSelection dim;
  dim.is_list = true;
  for (std::size_t i = 0; i < mask.values.size(); ++i) {
    if (mask.values[i] != 0) dim.indices.push_back(static_cast<std::int64_t>(i));
  }
  dim.count = static_cast<std::int64_t>(dim.indices.size());
  list_to_range(dim);
  return dim;
}

// Builds the outer product item by item.
class OuterProduct {
 public:
  OuterProduct(const Selection& selection,
               const Shape& shape,
               const Shape& chunks,
               const std::vector<ChunkEdges>& edges)
      : mode_(selection.mode()), shape_(shape), chunks_(chunks), edges_(edges) {
    if (mode_ == SelectionMode::block) {
      if (chunks.size() != shape.size()) {
        throw Error(ErrorCode::invalid_argument, "block selection: array has no chunk grid");
      }
      grid_ = grid_shape(shape, chunks, edges);
    }
    count_items(selection.items());
    out_.dims.reserve(shape.size());
    for (const SelectionItem& item : selection.items()) add(item);
    while (out_.dims.size() < shape_.size()) add_full();
  }

  ResolvedSelection take() { return std::move(out_); }

 private:
  void count_items(const std::vector<SelectionItem>& items) {
    std::size_t ellipses = 0;
    for (const SelectionItem& item : items) {
      ellipses += std::holds_alternative<Ellipsis>(item);
      consumed_ +=
          !std::holds_alternative<Ellipsis>(item) && !std::holds_alternative<NewAxis>(item);
    }
    if (ellipses > 1) fail_bounds("an index can only have a single ellipsis ('...')");
    if (consumed_ > shape_.size()) {
      fail_bounds("too many indices for array: array is " + std::to_string(shape_.size()) +
                  "-dimensional, but " + std::to_string(consumed_) + " were indexed");
    }
  }

  void add(const SelectionItem& item) {
    std::visit(Overloaded{
                   [&](std::int64_t index) { add_integer(index); },
                   [&](const Slice& slice) { add_slice(slice); },
                   [&](NewAxis) { add_new_axis(); },
                   [&](Ellipsis) {
                     for (std::size_t n = shape_.size() - consumed_; n > 0; --n) add_full();
                   },
                   [&](const IndexArray& array) {
                     if (mode_ != SelectionMode::orthogonal) fail_kind(mode_, "index arrays");
                     DimSelection dim = resolve_list(array, extent(), axis());
                     array.shape.empty() ? drop(std::move(dim)) : keep(std::move(dim));
                   },
                   [&](const Mask& mask) {
                     if (mode_ != SelectionMode::orthogonal) fail_kind(mode_, "masks");
                     keep(resolve_mask(mask, extent(), axis()));
                   },
               },
               item);
  }

  void add_integer(std::int64_t index) {
    if (mode_ != SelectionMode::block) return drop(single(wrap_index(index, extent(), axis())));
    const DimSelection block = single(wrap_index(index, grid_[axis()], axis()));
    keep(chunks_to_elements(block));
  }

  void add_slice(const Slice& slice) {
    if (mode_ != SelectionMode::block) return keep(resolve_slice(slice, extent()));
    if (slice.step != 1) fail_bounds("a block selection takes slices of step 1 only");
    keep(chunks_to_elements(resolve_slice(slice, grid_[axis()])));
  }

  // A range of chunks as a range of elements.
  DimSelection chunks_to_elements(const DimSelection& blocks) const {
    DimSelection dim;
    if (blocks.count == 0) return dim;
    const std::int64_t after = blocks.start + blocks.count;
    dim.start = first_index_of(blocks.start);
    dim.count = (after == grid_[axis()] ? extent() : first_index_of(after)) - dim.start;
    return dim;
  }

  std::int64_t first_index_of(std::int64_t chunk) const {
    return edges_.empty() ? chunk * chunks_[axis()] : edges_[axis()].first_index_of(chunk);
  }

  void add_new_axis() {
    if (mode_ != SelectionMode::basic) fail_kind(mode_, "new axes");
    out_.result_shape.push_back(1);
  }

  void add_full() {
    DimSelection dim;
    dim.count = extent();
    keep(std::move(dim));
  }

  void keep(DimSelection dim) {
    out_.result_axis.push_back(static_cast<int>(out_.result_shape.size()));
    out_.result_shape.push_back(dim.count);
    out_.dims.push_back(std::move(dim));
  }

  void drop(DimSelection dim) {
    out_.result_axis.push_back(-1);
    out_.dims.push_back(std::move(dim));
  }

  std::size_t axis() const { return out_.dims.size(); }
  std::int64_t extent() const { return shape_[axis()]; }

  SelectionMode mode_;
  const Shape& shape_;
  const Shape& chunks_;
  const std::vector<ChunkEdges>& edges_;
  Shape grid_;
  std::size_t consumed_ = 0;  // dimensions that the items name
  ResolvedSelection out_;
};

ResolvedSelection resolve_point_mask(const Mask& mask, const Shape& shape) {
  check_values(mask.values.size(), mask.shape, "mask");
  if (mask.shape != shape) fail_bounds("a mask selects points when it has the shape of the array");
  ResolvedSelection out;
  out.pointwise = true;
  out.dims.resize(shape.size());
  std::vector<std::int64_t> point(shape.size(), 0);
  std::int64_t count = 0;
  for (std::uint8_t wanted : mask.values) {
    if (wanted != 0) {
      ++count;
      for (std::size_t d = 0; d < point.size(); ++d) out.dims[d].indices.push_back(point[d]);
    }
    for (std::size_t d = point.size(); d-- > 0;) {
      if (++point[d] < shape[d]) break;
      point[d] = 0;
    }
  }
  for (DimSelection& dim : out.dims) {
    dim.is_list = true;
    dim.count = count;
  }
  out.result_shape = {count};
  out.pointwise = !shape.empty();  // a scalar is taken once or not at all: a new axis
  return out;
}

void broadcast_into(Shape& common, const Shape& shape) {
  if (shape.size() > common.size()) common.insert(common.begin(), shape.size() - common.size(), 1);
  const std::size_t lead = common.size() - shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::int64_t& extent = common[lead + i];
    if (extent == 1) extent = shape[i];
    if (shape[i] != 1 && shape[i] != extent) {
      fail_bounds("shape mismatch: index arrays could not be broadcast together, extents " +
                  std::to_string(extent) + " and " + std::to_string(shape[i]));
    }
  }
}

// One dimension's coordinates of every point.
DimSelection broadcast_indices(const std::vector<std::int64_t>& indices,
                               const Shape& shape,
                               const Shape& common,
                               std::size_t count) {
  DimSelection dim;
  dim.is_list = true;
  dim.count = static_cast<std::int64_t>(count);
  if (indices.size() == count) {
    dim.indices = indices;
    return dim;
  }
  const std::size_t lead = common.size() - shape.size();
  std::vector<std::size_t> strides(common.size(), 0);
  std::size_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1) strides[lead + i] = stride;
    stride *= static_cast<std::size_t>(shape[i]);
  }
  dim.indices.resize(count);
  std::vector<std::int64_t> at(common.size(), 0);
  std::size_t from = 0;
  for (std::int64_t& index : dim.indices) {
    index = indices[from];
    for (std::size_t d = common.size(); d-- > 0;) {
      from += strides[d];
      if (++at[d] < common[d]) break;
      from -= strides[d] * static_cast<std::size_t>(common[d]);
      at[d] = 0;
    }
  }
  return dim;
}

ResolvedSelection resolve_points(const std::vector<SelectionItem>& items, const Shape& shape) {
  if (items.size() == 1) {
    if (const Mask* mask = std::get_if<Mask>(&items[0])) return resolve_point_mask(*mask, shape);
  }
  if (items.size() != shape.size()) {
    fail_bounds("a coordinate selection wants an index for every dimension: array is " +
                std::to_string(shape.size()) + "-dimensional, but " + std::to_string(items.size()) +
                " were indexed");
  }
  std::vector<IndexArray> arrays;
  Shape common;
  for (std::size_t d = 0; d < items.size(); ++d) {
    IndexArray array;
    if (const auto* index = std::get_if<std::int64_t>(&items[d])) {
      array.indices = {*index};
    } else if (const auto* list = std::get_if<IndexArray>(&items[d])) {
      check_values(list->indices.size(), list->shape, "index array");
      array = *list;
    } else {
      fail_kind(SelectionMode::coordinate,
                std::holds_alternative<Mask>(items[d]) ? "masks beside indices"
                                                       : "slices, ellipses or new axes");
    }
    for (std::int64_t& index : array.indices) index = wrap_index(index, shape[d], d);
    broadcast_into(common, array.shape);
    arrays.push_back(std::move(array));
  }

  ResolvedSelection out;
  out.pointwise = !shape.empty();
  const std::size_t count = element_count(common, "coordinate selection");
  for (const IndexArray& array : arrays) {
    out.dims.push_back(broadcast_indices(array.indices, array.shape, common, count));
  }
  // zarr-python gives a lone point the shape (1,), unlike NumPy.
  out.result_shape = common.empty() && !shape.empty() ? Shape{1} : common;
  return out;
}

}  // namespace

std::size_t ResolvedSelection::size() const {
  return checked_nbytes(result_shape, 1, "size of the selection");
}

ResolvedSelection resolve_selection(const Selection& selection,
                                    const Shape& shape,
                                    const Shape& chunks,
                                    const std::vector<ChunkEdges>& edges) {
  ResolvedSelection resolved = selection.mode() == SelectionMode::coordinate
                                   ? resolve_points(selection.items(), shape)
                                   : OuterProduct(selection, shape, chunks, edges).take();
  resolved.array_shape = shape;
  return resolved;
}

}  // namespace headrace
