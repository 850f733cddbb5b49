#pragma once

#include <memory>

#include "engine/request/array_state.h"
#include "engine/request/request.h"
#include "format/selection.h"

namespace headrace {

// As read_vlen_selection, into offsets and values.
RaggedTensor read_ragged_selection(const ArrayState& state,
                                   std::shared_ptr<const ArrayLayout> layout,
                                   const ResolvedSelection& selection,
                                   const ReadOptions& options);

// Copies what `elements`, VlenElements in C order, point at into one block. `corrupt` for arrays
// that are not whole items, `out_of_memory` for more bytes than there can be.
RaggedTensor pack_ragged(const TensorView& elements, Request& request);

}  // namespace headrace
