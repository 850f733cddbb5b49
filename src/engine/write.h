#pragma once

#include <atomic>

#include "engine/array_state.h"
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

// `view` seen in `shape` by NumPy's broadcasting rules; invalid_argument when it does not fit.
TensorView broadcast_to(const TensorView& view, const Shape& shape);

}  // namespace headrace
