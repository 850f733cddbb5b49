#pragma once

#include <variant>
#include <vector>

#include "codec/vlen.h"
#include "engine/query/cut.h"
#include "engine/request/request.h"
#include "engine/request/stored_array.h"

namespace headrace {

// What is wanted of an array whose store has asynchronous reads.
struct NetworkQuery {
  const StoredArray* array;
  VlenArena* arena;  // null, or for the bytes of elements of variable length
  std::variant<Box, Points> query;
};

// Brings that to the host's memory, by asynchronous reads of the arrays' stores: whole objects,
// ranges of those that are not encoded, and of shards the index first, then all that is wanted of
// them, of that version. The queries share what is under way, in their order. `io` with ESTALE
// (throw_changed) when an object was replaced meanwhile.
void read_from_network(Request& request, std::vector<NetworkQuery> queries);

}  // namespace headrace
