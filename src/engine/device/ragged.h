#pragma once

#include <memory>
#include <optional>

#include "engine/request/array_state.h"
#include "format/selection.h"

namespace headrace {

// As read_ragged_selection, decoded by the array's device, to new memory there. Nothing where the
// host is to decode: what it does sooner, and what no kernel takes.
std::optional<RaggedTensor> read_ragged_on_device(const ArrayState& state,
                                                  std::shared_ptr<const ArrayLayout> layout,
                                                  const ResolvedSelection& selection,
                                                  const ReadOptions& options);

}  // namespace headrace
