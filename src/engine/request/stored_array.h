#pragma once

#include <memory>
#include <string>

#include "engine/layout/array_layout.h"
#include "engine/request/array_state.h"

namespace headrace {

// An array where it is stored: its store, what its objects are called, and what they hold. Of a
// rectilinear grid, the objects of one shape.
class StoredArray {
 public:
  // `state` must outlive it.
  StoredArray(const ArrayState& s, std::shared_ptr<const ArrayLayout> l);

  const ArrayState& state;
  const std::shared_ptr<const ArrayLayout> layout_owner;
  const ArrayLayout& layout;
  StoreDriver& driver;

  // Key of a stored chunk within the store.
  std::string key(const std::int64_t* coordinates) const;
  // "[read] a/b chunk c/0/3" for messages.
  std::string where(const char* action, const std::string& key) const;
};

}  // namespace headrace
