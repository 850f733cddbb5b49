#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/request/array_state.h"
#include "engine/request/stored_array.h"

namespace headrace {

// What lies in the store for an array, found by listing: objects whose keys are chunk keys, within
// the array's shape and outside of it.
struct Listing {
  std::vector<std::string> inside;
  std::vector<std::string> outside;
};
Listing list_chunks(const ArrayState& state);

// Of the objects within its shape, by the store's list.
std::uint64_t stored_nbytes(const ArrayState& state);

// Calls take(key, coordinates) for each stored object that is a chunk of an array with these
// metadata.
using ChunkCoordinates = std::vector<std::int64_t>;
void each_stored_chunk(const ArrayState& state,
                       const ArrayMetadata& metadata,
                       FunctionRef<void(std::string key, const ChunkCoordinates& at)> take);

// Of the stored object of this key, one of `inside`.
std::shared_ptr<const ArrayLayout> layout_of_object(const StoredArray& array,
                                                    const std::string& key);

// Chunks of the unit that is read; inner chunks by their shards' indices.
std::int64_t count_stored_chunks(const ArrayState& state);

}  // namespace headrace
