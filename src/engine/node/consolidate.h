#pragma once

#include <functional>
#include <string>

#include "headrace/store.h"

namespace headrace {

// The consolidated metadata of the groups above a node, when it is replaced or removed: they would
// go on describing what was there, and its chunks would be read as what they are not. No lock of a
// node may be held. `call` is for messages.

// Before: takes the node, and those below it, out of them. True when they were in any.
bool leave_consolidated(const char* call,
                        const Store& store,
                        const std::string& path,
                        const std::function<void()>& poll);
// After: enters what is there by now, into those of all groups above that have some.
void enter_consolidated(const char* call,
                        const Store& store,
                        const std::string& path,
                        const std::function<void()>& poll);

}  // namespace headrace
