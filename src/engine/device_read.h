#pragma once

#include <atomic>

#include "engine/array_state.h"
#include "format/selection.h"

namespace headrace {

// As read_selection, for `out` in the memory of a device. When it returns, the work on the device
// is done. Work that the stream of `options` (without one, the device's default stream) was given
// before may still use `out`.
void read_selection_to_device(const ArrayState& state,
                              std::shared_ptr<const ArrayLayout> layout,
                              const ResolvedSelection& selection,
                              const TensorView& out,
                              const ReadOptions& options,
                              const std::atomic<bool>* cancel = nullptr);

// Into new memory, which nobody's earlier work uses: no stream is waited for.
Tensor read_new_on_device(const ArrayState& state,
                          std::shared_ptr<const ArrayLayout> layout,
                          const ResolvedSelection& selection,
                          const ReadOptions& options,
                          const std::atomic<bool>* cancel = nullptr);

}  // namespace headrace
