#pragma once

#include <memory>

#include "engine/request/array_state.h"

namespace headrace {

// Removes what lies outside `shape` of an array that was larger, `before`: whole objects, and the
// parts of others, which become the fill value. Parts that cannot be decoded or encoded stay.
void erase_outside(const ArrayState& state,
                   const Shape& shape,
                   const std::shared_ptr<const ArrayMetadata>& before);

}  // namespace headrace
