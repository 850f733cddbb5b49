#pragma once

#include <memory>
#include <string>

#include "store/store.h"

namespace headrace {

class MemoryContents;

// A new store for nobody else's eyes, or a view of `contents` under a name.
std::unique_ptr<StoreDriver> make_memory_store(std::shared_ptr<MemoryContents> contents,
                                               const std::string& name,
                                               bool read_only);
std::shared_ptr<MemoryContents> new_memory_contents();

// The contents of memory://name, kept until the process ends: null when there are none and `create`
// is false. `created` says whether this call made them.
std::shared_ptr<MemoryContents> named_memory_contents(const std::string& name,
                                                      bool create,
                                                      bool& created);

}  // namespace headrace
