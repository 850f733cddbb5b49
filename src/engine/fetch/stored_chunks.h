#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/request/array_state.h"
#include "engine/request/context.h"

namespace headrace {

// What lies in the store for an array, found by listing: objects whose keys are chunk keys, within
// the array's shape and outside of it.
struct Listing {
  std::vector<std::string> inside;
  std::vector<std::string> outside;
};
Listing list_chunks(const ArrayState& state);

// Of the stored object of this key, one of `inside`.
std::shared_ptr<const ArrayLayout> layout_of_object(const RequestContext& context,
                                                    const std::string& key);

// Chunks of the unit that is read; inner chunks by their shards' indices.
std::int64_t count_stored_chunks(const ArrayState& state);

// Removes what lies outside `shape` of an array that was larger, `before`: whole objects, and the
// parts of others, which become the fill value. Parts that cannot be decoded or encoded stay.
void erase_outside(const ArrayState& state,
                   const Shape& shape,
                   const std::shared_ptr<const ArrayMetadata>& before);

}  // namespace headrace
