// What changes the metadata of an array: resize, append, attributes.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/counted.h"
#include "engine/device/from_device.h"
#include "engine/node/metadata_change.h"
#include "engine/query/coordinates.h"
#include "engine/request/array_state.h"
#include "engine/request/request.h"
#include "engine/write/erase_outside.h"
#include "format/selection.h"
#include "headrace/array.h"

namespace headrace {
namespace {

// The edges of a rectilinear grid for an array of this shape.
std::vector<ChunkEdges> grown(std::vector<ChunkEdges> edges, const Shape& shape) {
  for (std::size_t d = 0; d < edges.size(); ++d) edges[d].grow_to(shape[d]);
  return edges;
}

std::shared_ptr<const ArrayMetadata> with_new_shape(const char* call,
                                                    const std::string& name,
                                                    const ArrayMetadata& now,
                                                    const Shape& shape) {
  auto result = std::make_shared<ArrayMetadata>(now);
  result->shape = shape;
  result->document = with_shape(now.document, shape, grown(now.chunk_edges, shape));
  if (now.chunk_edges.empty()) return result;
  try {
    *result = parse_array_v3(result->document);
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument,
                std::string("[") + call + "] " + name + ": " + error.what());
  }
  return result;
}

void store_attributes_v3(ArrayChange& change, const std::string& attributes) {
  auto after = std::make_shared<ArrayMetadata>(*change.now());
  after->attributes = attributes;
  after->document = with_attributes(after->document, attributes);
  change.store(std::move(after));
}

// The attributes name the dimensions, and by marks of netCDF-C's say what the elementsize of a
// shuffle means: before that changes, the document says what it was taken for.
void store_attributes_v2(ArrayChange& change, const std::string& attributes) {
  ArrayMetadata after = parse_array_v2(change.now()->document, attributes);
  if (after.codecs != change.now()->codecs) {
    auto clear = std::make_shared<ArrayMetadata>(*change.now());
    clear->document = with_v2_codecs(*clear);
    after = parse_array_v2(clear->document, attributes);
    change.store(std::move(clear));
  }
  change.store(std::make_shared<const ArrayMetadata>(std::move(after)));
}

void store_attributes(ArrayChange& change, const std::string& attributes) {
  change.now()->zarr_format == 3 ? store_attributes_v3(change, attributes)
                                 : store_attributes_v2(change, attributes);
}

bool is_smaller(const Shape& shape, const Shape& before) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < before[d]) return true;
  }
  return false;
}

// The shape of the array with `data` behind it along `axis`.
Shape appended_shape(const std::string& name,
                     const Shape& now,
                     const TensorView& data,
                     std::size_t axis) {
  Shape expected = now;
  if (data.shape.size() == now.size()) expected[axis] = data.shape[axis];
  if (data.shape != expected) {
    throw Error(ErrorCode::invalid_argument,
                "[append] " + name + ": data has shape " + shape_text(data.shape) +
                    ", expected that of the array but for axis " + std::to_string(axis) + ": " +
                    shape_text(now));
  }
  expected[axis] = checked_add(now[axis], data.shape[axis], "extent");
  checked_nbytes(expected, std::max<std::size_t>(data.dtype.itemsize(), 1), "shape");
  return expected;
}

// What a failed append leaves is not the failure to be told of.
template <typename Undo>
void try_to(Undo undo) noexcept {
  try {
    undo();
  } catch (...) {  // the append's own error goes on
  }
}

// Behind its end as the store has it. Where another writer forestalls it nothing is written.
Shape append_once(const ArrayState& state,
                  const TensorView& data,
                  std::size_t d,
                  const WriteOptions& options) {
  ArrayChange change("append", state, options.poll);
  const auto before = change.now();
  const Shape after = appended_shape(state.name(), before->shape, data, d);
  const auto wanted = with_new_shape("append", state.name(), *before, after);
  const auto write = [&] {
    std::vector<SelectionItem> items(after.size(), all);
    items[d] = slice(before->shape[d], after[d]);
    write_anywhere(
        state,
        state.layout_of(wanted, options.implementations),
        resolve_selection(
            Selection(std::move(items)), wanted->shape, wanted->chunk_shape, wanted->chunk_edges),
        data,
        options);
  };
  if (change.excludes_processes()) {
    // Nobody sees rows that are not written yet.
    try {
      write();
      change.store(wanted);
    } catch (...) {
      try_to([&] {
        if (change.is_current()) erase_outside(state, before->shape, wanted);
      });
      throw;
    }
    return after;
  }
  // The shape is what keeps two from writing to one place.
  change.store(wanted);
  try {
    write();
  } catch (...) {
    try_to([&] {
      change.store(before);  // `conflict` when somebody has grown it further
      erase_outside(state, before->shape, wanted);
    });
    throw;
  }
  return after;
}

}  // namespace

void Array::resize(const Shape& shape, const WriteOptions& options) const {
  state_->check_writable();
  const std::size_t ndim = state_->metadata()->ndim();
  if (shape.size() != ndim) {
    throw Error(ErrorCode::invalid_argument,
                "[resize] " + state_->name() + ": expected " + counted(ndim, "extent") + ", got " +
                    std::to_string(shape.size()));
  }
  for (std::int64_t extent : shape) {
    if (extent < 0 && extent != kKeepExtent)
      throw Error(ErrorCode::invalid_argument,
                  "[resize] " + state_->name() + ": extent " + std::to_string(extent));
  }
  again_when_forestalled(options.poll, OnDoubt::again, [&] {
    ArrayChange change("resize", *state_, options.poll);
    const auto before = change.now();
    Shape after = shape;
    for (std::size_t d = 0; d < ndim; ++d) {
      if (after[d] == kKeepExtent) after[d] = before->shape[d];
    }
    checked_nbytes(after, std::max<std::size_t>(before->dtype.itemsize(), 1), "shape");
    change.store(with_new_shape("resize", state_->name(), *before, after));
    // Still under the lock: nobody has grown it again and written there.
    if (is_smaller(after, before->shape)) erase_outside(*state_, after, before);
  });
}

Shape Array::append(const TensorView& data, int axis, const WriteOptions& options) const {
  state_->check_writable();
  const auto seen = state_->metadata();
  const int ndim = static_cast<int>(seen->ndim());
  const int at = axis < 0 ? axis + ndim : axis;
  if (at < 0 || at >= ndim) {
    throw Error(ErrorCode::invalid_argument,
                "[append] " + state_->name() + ": axis " + std::to_string(axis) +
                    " of an array of " + counted(static_cast<std::size_t>(ndim), "dimension"));
  }
  if (data.dtype != seen->dtype) {
    throw Error(ErrorCode::invalid_argument,
                "[append] " + state_->name() + ": expected dtype " + seen->dtype.to_string() +
                    ", got " + data.dtype.to_string());
  }
  state_->check_memory("append", data);
  const auto d = static_cast<std::size_t>(at);
  // What may have been made before another writer's is not made once more: there would be rows that
  // nobody has written.
  return again_when_forestalled(
      options.poll, OnDoubt::raise, [&] { return append_once(*state_, data, d, options); });
}

void Array::set_attributes_json(std::string_view json, const WriteOptions& options) const {
  state_->check_writable();
  const std::string attributes = checked_json_object(json, "attributes");
  again_when_forestalled(options.poll, OnDoubt::again, [&] {
    ArrayChange change("attributes", *state_, options.poll);
    store_attributes(change, attributes);
  });
}

std::string Array::update_attributes(const AttributeChanges& changes,
                                     const WriteOptions& options) const {
  state_->check_writable();
  return again_when_forestalled(options.poll, OnDoubt::again, [&] {
    ArrayChange change("attributes", *state_, options.poll);
    const auto before = change.now();
    store_attributes(change, changed_attributes(before->attributes, changes));
    return before->attributes;
  });
}

}  // namespace headrace
