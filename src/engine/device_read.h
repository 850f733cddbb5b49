#pragma once

#include <atomic>

#include "device/backend.h"
#include "engine/request_context.h"
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

// What both do, with a backend and the first of the queues that it uses. When it returns, the work
// is done.
void read_on_queue(RequestContext& context,
                   const ResolvedSelection& selection,
                   const TensorView& out,
                   Backend& backend,
                   std::unique_ptr<Queue> queue);

}  // namespace headrace
