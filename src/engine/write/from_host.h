#pragma once

#include <atomic>

#include "engine/query/coordinates.h"
#include "engine/query/cut.h"
#include "engine/query/regions.h"
#include "engine/request/context.h"
#include "format/selection.h"

namespace headrace {

// `selection` was resolved for the shape of `layout`. `data` has its result shape (strides of 0
// where it was broadcast) and the array's dtype. A stored object is replaced whole or not at all.
void write_selection(const ArrayState& state,
                     std::shared_ptr<const ArrayLayout> layout,
                     const ResolvedSelection& selection,
                     const TensorView& data,
                     const WriteOptions& options,
                     const std::atomic<bool>* cancel = nullptr);

// What of it is in one stored object: `box`, relative to that. `valid` is valid_extent() of it.
void write_object(RequestContext& context,
                  const std::string& key,
                  const Box& box,
                  const Shape& valid);
// The part of a chunk that lies within the array, or within the part of a shard that does.
// `region`: that of the array in which the chunk is.
Shape valid_extent(const Coordinates& coordinates,
                   const Shape& extent,
                   const Shape& chunk,
                   const Region& region = {});
// True when every index below `valid` is written, whatever was stored.
bool covers(const Box& box, const Shape& valid);

// `view` seen in `shape` by NumPy's broadcasting rules; invalid_argument when it does not fit.
TensorView broadcast_to(const TensorView& view, const Shape& shape);

}  // namespace headrace
