#pragma once

#include <atomic>

#include "engine/request/array_state.h"
#include "format/selection.h"

namespace headrace {

// As write_selection, for `data` in the memory of a device and a selection that is not pointwise.
// Work that the stream of `options` (without one, the device's default stream) was given before may
// still make `data`.
void write_selection_from_device(const ArrayState& state,
                                 std::shared_ptr<const ArrayLayout> layout,
                                 const ResolvedSelection& selection,
                                 const TensorView& data,
                                 const WriteOptions& options,
                                 const std::atomic<bool>* cancel = nullptr);

// As write_selection, for `data` in the memory of the host or a device, which need not have been
// broadcast, and for any selection.
void write_anywhere(const ArrayState& state,
                    std::shared_ptr<const ArrayLayout> layout,
                    const ResolvedSelection& selection,
                    const TensorView& data,
                    const WriteOptions& options,
                    const std::atomic<bool>* cancel = nullptr);

}  // namespace headrace
