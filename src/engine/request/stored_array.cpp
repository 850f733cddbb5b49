#include "engine/request/stored_array.h"

#include <utility>

namespace headrace {

StoredArray::StoredArray(const ArrayState& s, std::shared_ptr<const ArrayLayout> l)
    : state(s), layout_owner(std::move(l)), layout(*layout_owner), driver(s.driver()) {}

std::string StoredArray::key(const std::int64_t* coordinates) const {
  const ArrayMetadata& m = *layout.metadata;
  std::string key;
  key.reserve(state.path().size() + 32);
  key = state.path();
  if (!key.empty()) key += '/';
  m.chunk_keys.append(key, coordinates, m.ndim());
  return key;
}

std::string StoredArray::where(const char* action, const std::string& key) const {
  const std::string& path = state.path();
  std::string text = "[" + std::string(action) + "] " + state.name() + " chunk ";
  text += path.empty() ? key : key.substr(path.size() + 1);
  return text;
}

}  // namespace headrace
