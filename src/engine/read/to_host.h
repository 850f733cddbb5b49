#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "engine/request/array_state.h"
#include "format/selection.h"

namespace headrace {

// `selection` was resolved for the shape of `layout`. `out` has its result shape and the array's
// dtype.
void read_selection(const ArrayState& state,
                    std::shared_ptr<const ArrayLayout> layout,
                    const ResolvedSelection& selection,
                    const TensorView& out,
                    const ReadOptions& options,
                    const std::atomic<bool>* cancel = nullptr);

// One of several.
struct HostRead {
  const ArrayState* state;
  std::shared_ptr<const ArrayLayout> layout;
  const ResolvedSelection* selection;
  TensorView out;
};

// The same of several at once, of arrays in stores across a network: they share what is under way.
void read_from_network_together(std::span<const HostRead> reads, const ReadOptions& options);

// The same of elements of variable length, into new memory that keeps their bytes.
Tensor read_vlen_selection(const ArrayState& state,
                           std::shared_ptr<const ArrayLayout> layout,
                           const ResolvedSelection& selection,
                           const ReadOptions& options,
                           const std::atomic<bool>* cancel = nullptr);

}  // namespace headrace
