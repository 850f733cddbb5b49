#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/node/catalog.h"
#include "headrace/array.h"

namespace headrace {

// What is to be copied, by paths relative to its root.
struct RechunkTree {
  Store store;
  std::string path;                                   // of the root
  std::vector<std::pair<std::string, Group>> groups;  // each after the one it is in
  std::vector<std::pair<std::string, Array>> arrays;
  bool consolidated = false;

  std::string place() const { return place_of(store, path); }
};

// Of the nodes as they are, whatever consolidated metadata say.
RechunkTree tree_of(const Group& group,
                    const std::function<void(const NodeLeftOut&)>& left_out = {});
RechunkTree tree_of(const Array& array);

// Of a node below a root, whose own name is "".
std::string node_below(const std::string& path, const std::string& name);

}  // namespace headrace
