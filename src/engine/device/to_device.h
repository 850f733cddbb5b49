#pragma once

#include <atomic>
#include <span>

#include "device/backend.h"
#include "engine/request/request.h"
#include "engine/request/stored_array.h"
#include "format/selection.h"

namespace headrace {

// As read_selection, for `out` in the memory of a device. When it returns, the work on the device
// is done. Work that the stream of `options` (without one, the device's default stream) was given
// before may still use `out`; of an asynchronous call that is what came before `behind`, which
// was made when it was called.
void read_selection_to_device(const ArrayState& state,
                              std::shared_ptr<const ArrayLayout> layout,
                              const ResolvedSelection& selection,
                              const TensorView& out,
                              const ReadOptions& options,
                              const std::atomic<bool>* cancel = nullptr,
                              Mark* behind = nullptr);

// A selection, resolved for the shape of the layout, and where it goes.
struct DeviceTarget {
  const ResolvedSelection* selection;
  TensorView out;
};

// Several of one array to one device: their chunks are fetched and decoded together.
void read_selections_to_device(const ArrayState& state,
                               std::shared_ptr<const ArrayLayout> layout,
                               std::span<const DeviceTarget> targets,
                               const ReadOptions& options);

// Into new memory, which nobody's earlier work uses: no stream is waited for.
Tensor read_new_on_device(const ArrayState& state,
                          std::shared_ptr<const ArrayLayout> layout,
                          const ResolvedSelection& selection,
                          const ReadOptions& options,
                          const std::atomic<bool>* cancel = nullptr);

// What both do, with a backend and the first of the queues that it uses. When it returns, the work
// is done.
void read_on_queue(Request& request,
                   const StoredArray& array,
                   const ResolvedSelection& selection,
                   const TensorView& out,
                   Backend& backend,
                   std::unique_ptr<Queue> queue);

class KeptMemory;  // engine/device/stages.h

// The same of elements of variable length: `out` gets RaggedElements, which point into `kept`.
// False, and nothing is done, where the host is to decode; `unsupported` where that shows later.
bool read_elements_on_queue(Request& request,
                            const StoredArray& array,
                            const ResolvedSelection& selection,
                            const TensorView& out,
                            Backend& backend,
                            Queue& queue,
                            KeptMemory& kept);

}  // namespace headrace
