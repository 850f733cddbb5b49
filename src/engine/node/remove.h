#pragma once

#include <functional>
#include <optional>
#include <string>

#include "format/metadata.h"
#include "headrace/store.h"

namespace headrace {

// What overwriting removes: Zarr's own. That is metadata documents, below an array the chunks, all
// nodes below, and temporary files that killed writers left. Other files stay, and the folders they
// lie in. Links are removed, when they are members or chunks, and never followed.
//
// Of the array that is to be made, null for a group, all keys go: they would be its chunks.
//
// invalid_argument when there is no node but files: whose they are nobody knows. `call` is for
// messages.
void check_removable(const char* call,
                     const Store& store,
                     const std::string& path,
                     const ArrayMetadata* made);

// Under the lock of `path` (engine/node/lock.h); takes those of the nodes below. An array has no
// elements while it is removed, and its documents go last: a crash leaves nothing that belongs to
// no node, so that the next attempt finds all of it. The folder itself stays.
void remove_node(const char* call,
                 const Store& store,
                 const std::string& path,
                 const std::function<void()>& poll,
                 const ArrayMetadata* made);

// The key, below `path`, of a chunk that lies there without a node, where an array is to be made: a
// removal or a copy that was cut off has left it. Nothing where the store does not list.
std::optional<std::string> find_leftover(const Store& store,
                                         const std::string& path,
                                         const ArrayMetadata& made);

}  // namespace headrace
