#pragma once

#include "codec/vlen.h"
#include "engine/query/cut.h"
#include "engine/request/request.h"
#include "engine/request/stored_array.h"
#include "store/async.h"

namespace headrace {

// Brings what a query (Box or Points) wants of an array to the host's memory, by asynchronous reads
// of the array's store: whole objects, ranges of those that are not encoded, and of shards the
// index first, then all that is wanted of them, of that version. `io` with ESTALE (throw_changed)
// when an object was replaced meanwhile. `arena`: null, or for the bytes of elements of variable
// length.
template <typename Query>
void read_from_network(
    Request& request, const StoredArray& array, VlenArena* arena, AsyncReads& store, Query query);

}  // namespace headrace
