#include "engine/rechunk/tree.h"

#include <filesystem>
#include <string_view>
#include <system_error>

#include "headrace/rechunk.h"
#include "store/url.h"

namespace headrace {
namespace {

void gather(const Group& group, const std::string& path, WalkLimit& limit, RechunkTree& tree) {
  limit.count(tree.store, tree.path);
  tree.groups.emplace_back(path, group);
  for (const Node& node : group.members()) {
    const std::string member = join_key(path, node.name);
    if (node.is_group) {
      gather(group.group(node.name), member, limit, tree);
    } else {
      limit.count(tree.store, tree.path);
      tree.arrays.emplace_back(member, group.array(node.name).to(Device::cpu()));
    }
  }
}

// Files by their one real path, whatever links and ".." lead there.
std::string real_place(const Store& store, const std::string& path) {
  const std::string place = node_below(store.url(), path);
  for (const std::string_view scheme : {"file://", "zip://"}) {
    if (!place.starts_with(scheme)) continue;
    std::error_code failed;
    const std::string file = percent_decode(std::string_view(place).substr(scheme.size()));
    const auto real = std::filesystem::weakly_canonical(file, failed);
    return failed ? file : real.string();
  }
  return place;
}

bool overlap(const std::string& a, const std::string& b) {
  const auto is_within = [](const std::string& inner, const std::string& outer) {
    return outer.empty() || inner == outer || inner.starts_with(outer + '/');
  };
  return is_within(a, b) || is_within(b, a);
}

}  // namespace

RechunkTree tree_of(const Group& group) {
  RechunkTree tree{group.store(), group.path(), {}, {}, group.consolidated()};
  WalkLimit limit;
  gather(group, "", limit, tree);
  return tree;
}

RechunkTree tree_of(const Array& array) {
  return {array.store(), array.path(), {}, {{"", array.to(Device::cpu())}}};
}

std::string node_below(const std::string& path, const std::string& name) {
  return name.empty() ? path : join_key(path, name);
}

bool nodes_overlap(const Store& store,
                   std::string_view path,
                   const Store& other_store,
                   std::string_view other_path) {
  const std::string one(path);
  const std::string other(other_path);
  if (store.shared_driver() == other_store.shared_driver()) return overlap(one, other);
  constexpr const char* kNamelessMemory = "memory://";
  if (store.url() == kNamelessMemory || other_store.url() == kNamelessMemory) return false;
  return overlap(real_place(store, one), real_place(other_store, other));
}

}  // namespace headrace
