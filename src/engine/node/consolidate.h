#pragma once

#include <functional>
#include <string>
#include <utility>

#include "headrace/store.h"

namespace headrace {

// The consolidated metadata of the groups above a node, when it is replaced or removed: they would
// go on describing what was there, and its chunks would be read as what they are not. No lock of a
// node may be held. `call` is for messages.

// Before: takes the node, and those below it, out of them. Should the rest fail, what is left of it
// is entered again; its error counts.
class LeftConsolidated {
 public:
  LeftConsolidated(const char* call,
                   const Store& store,
                   const std::string& path,
                   const std::function<void()>& poll);
  ~LeftConsolidated();
  LeftConsolidated(const LeftConsolidated&) = delete;
  LeftConsolidated& operator=(const LeftConsolidated&) = delete;

  // The node is gone. True when it was in any.
  bool done() { return std::exchange(any_, false); }

 private:
  const char* const call_;
  const Store store_;
  const std::string path_;
  bool any_;
};
// After: enters what is there by now, into those of all groups above that have some.
void enter_consolidated(const char* call,
                        const Store& store,
                        const std::string& path,
                        const std::function<void()>& poll);

}  // namespace headrace
