#pragma once

// Prefixes over plain lists of keys, for stores that have no folders. A prefix is "" or "a/b",
// without its slash (check_prefix).

#include <string>
#include <string_view>
#include <vector>

#include "store/store.h"

namespace headrace {

inline bool lies_below(std::string_view key, std::string_view prefix) {
  return prefix.empty() ||
         (key.size() > prefix.size() && key[prefix.size()] == '/' && key.starts_with(prefix));
}

// From the sorted keys below the prefix: their next segments, sorted, without repeats.
std::vector<DirEntry> names_directly_below(const std::vector<std::string>& keys,
                                           std::string_view prefix);

}  // namespace headrace
