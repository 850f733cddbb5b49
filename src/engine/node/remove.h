#pragma once

#include <functional>
#include <string>

#include "headrace/store.h"

namespace headrace {

// What overwriting removes: Zarr's own. That is metadata documents, below an array the chunks, all
// nodes below, and temporary files that killed writers left. Other files stay, and the folders they
// lie in. Links are removed, when they are members or chunks, and never followed.
//
// invalid_argument when there is no node but files: whose they are nobody knows. `call` is for
// messages.
void check_removable(const char* call, const Store& store, const std::string& path);

// Under the lock of `path` (engine/node/lock.h); takes those of the nodes below. An array has no
// elements while it is removed, and its documents go last: a crash leaves nothing that belongs to
// no node, so that the next attempt finds all of it. The folder itself stays.
void remove_node(const char* call,
                 const Store& store,
                 const std::string& path,
                 const std::function<void()>& poll);

}  // namespace headrace
