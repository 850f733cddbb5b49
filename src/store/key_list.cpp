#include "store/key_list.h"

#include <algorithm>

namespace headrace {

std::vector<DirEntry> names_directly_below(const std::vector<std::string>& keys,
                                           std::string_view prefix) {
  std::vector<DirEntry> entries;
  for (std::string_view key : keys) {
    std::string_view rest = prefix.empty() ? key : key.substr(prefix.size() + 1);
    std::size_t slash = rest.find('/');
    bool is_prefix = slash != std::string_view::npos;
    std::string_view name = rest.substr(0, slash);
    // Repeats of a prefix follow each other: nothing sorts between "a/..." and "a/...".
    if (is_prefix && !entries.empty() && entries.back().is_prefix && entries.back().name == name) {
      continue;
    }
    entries.push_back({std::string(name), is_prefix, false});
  }
  // "a-b" sorts before "a/b", but the name "a" before "a-b".
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace headrace
