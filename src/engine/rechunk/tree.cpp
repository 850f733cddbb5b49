#include "engine/rechunk/tree.h"

#include <string_view>

#include "headrace/rechunk.h"
#include "store/overlap.h"

namespace headrace {
namespace {

using TellLeftOut = std::function<void(const NodeLeftOut&)>;

void gather(const Group& group,
            const std::string& path,
            const TellLeftOut& tell,
            WalkLimit& limit,
            RechunkTree& tree) {
  limit.count(tree.store, tree.path);
  tree.groups.emplace_back(path, group);
  std::vector<NodeLeftOut> left_out;
  const std::vector<Node> members = tell ? group.members(left_out) : group.members();
  for (NodeLeftOut& node : left_out) tell({join_key(path, node.name), std::move(node.why)});
  for (const Node& node : members) {
    const std::string member = join_key(path, node.name);
    if (node.is_group) {
      gather(group.group(node.name), member, tell, limit, tree);
    } else {
      limit.count(tree.store, tree.path);
      tree.arrays.emplace_back(member, group.array(node.name).to(Device::cpu()));
    }
  }
}

}  // namespace

RechunkTree tree_of(const Group& group, const TellLeftOut& left_out) {
  RechunkTree tree{group.store(), group.path(), {}, {}, group.consolidated()};
  WalkLimit limit;
  gather(group.as_stored(), "", left_out, limit, tree);
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
  return places_overlap(store, path, other_store, other_path);
}

}  // namespace headrace
