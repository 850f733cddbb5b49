#include "engine/node/consolidate.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "engine/node/catalog.h"
#include "engine/node/metadata_change.h"
#include "headrace/array.h"

namespace headrace {
namespace {

// Every node below `path`, by its path relative to it. Links back are none: list_nodes().
void gather(const Store& store,
            const std::string& path,
            const std::string& relative,
            int zarr_format,
            WalkLimit& limit,
            NodeMap& nodes) {
  const std::string here = relative.empty() ? path : join_key(path, relative);
  for (auto& [name, node] : list_nodes(store, here, zarr_format, Malformed::raise)) {
    const std::string child = join_key(relative, name);
    const bool is_group = node.type == NodeType::group;
    limit.count(store, path);
    nodes.emplace(child, std::move(node));
    if (is_group) gather(store, path, child, zarr_format, limit, nodes);
  }
}

std::string consolidated_v3(const NodeDocuments& root, const NodeMap& nodes) {
  std::map<std::string, std::string> documents;
  for (const auto& [name, node] : nodes) {
    // An inner group's own consolidated metadata would be here a second time; zarr-python, too,
    // leaves an empty table in their place.
    documents.emplace(
        name, node.type == NodeType::group ? with_consolidated(node.document, {}) : node.document);
  }
  return with_consolidated(root.document, documents);
}

std::string consolidated_v2(const NodeDocuments& root, const NodeMap& nodes) {
  std::map<std::string, V2Node> texts;
  const auto add = [&](const std::string& name, const NodeDocuments& node) {
    V2Node& into = texts[name];
    (node.type == NodeType::array ? into.zarray : into.zgroup) = node.document;
    into.zattrs = node.attributes;
  };
  add("", root);
  for (const auto& [name, node] : nodes) add(name, node);
  return write_consolidated_v2(texts);
}

// What `change` holds, with these nodes as its consolidated metadata.
void store_consolidated(const std::string& where,
                        const Store& store,
                        const std::string& path,
                        NodeChange& change,
                        const NodeMap& nodes) {
  const NodeDocuments& now = change.documents();
  if (now.zarr_format == 3) return change.store(consolidated_v3(now, nodes), now.attributes);
  const std::string document = consolidated_v2(now, nodes);
  check_readable(where, document);
  store.driver().set(join_key(path, ".zmetadata"), bytes_of(document));
}

std::size_t erase_at_and_below(NodeMap& nodes, const std::string& name) {
  std::size_t n = nodes.erase(name);
  const std::string prefix = name + '/';
  auto it = nodes.lower_bound(prefix);
  while (it != nodes.end() && it->first.starts_with(prefix)) {
    it = nodes.erase(it);
    ++n;
  }
  return n;
}

// A node in the store, and those below it, by their paths relative to `above`.
void gather_at_and_below(const Store& store,
                         const std::string& above,
                         const std::string& name,
                         int zarr_format,
                         NodeMap& nodes) {
  auto node = find_node(store, join_key(above, name), zarr_format);
  if (!node) return;
  const bool is_group = node->type == NodeType::group;
  nodes.emplace(name, std::move(*node));
  WalkLimit limit;
  if (is_group) gather(store, above, name, zarr_format, limit, nodes);
}

std::optional<NodeMap> consolidated_of(const Store& store,
                                       const std::string& path,
                                       const NodeDocuments& group) {
  return consolidated_nodes(store, path, group_metadata_of(store, path, group));
}

// Of each group above: `enter` puts what is there in the place of what it says of the node.
bool change_consolidated(const char* call,
                         const Store& store,
                         const std::string& path,
                         const std::function<void()>& poll,
                         bool enter) {
  bool any = false;
  for (const std::string& above : groups_above(path)) {
    const std::string name = path.substr(above.empty() ? 0 : above.size() + 1);
    const auto found = find_node(store, above, std::nullopt);
    if (!found || found->type != NodeType::group) continue;
    auto nodes = consolidated_of(store, above, *found);
    if (!nodes || (!enter && erase_at_and_below(*nodes, name) == 0)) continue;
    const std::string where = std::string("[") + call + "] " + place_of(store, above);
    again_when_forestalled(poll, OnDoubt::again, [&] {
      NodeChange change(call, store, above, NodeType::group, found->zarr_format, poll);
      nodes = consolidated_of(store, above, change.documents());
      if (!nodes) return;
      const bool is_named = erase_at_and_below(*nodes, name) > 0;
      if (enter) gather_at_and_below(store, above, name, found->zarr_format, *nodes);
      if (enter || is_named) store_consolidated(where, store, above, change, *nodes);
      any |= is_named;
    });
  }
  return any;
}

}  // namespace

LeftConsolidated::LeftConsolidated(const char* call,
                                   const Store& store,
                                   const std::string& path,
                                   const std::function<void()>& poll)
    : call_(call),
      store_(store),
      path_(path),
      any_(change_consolidated(call, store, path, poll, false)) {}

LeftConsolidated::~LeftConsolidated() {
  if (!any_) return;
  try {
    enter_consolidated(call_, store_, path_, {});
  } catch (const Error&) {
  }
}

void enter_consolidated(const char* call,
                        const Store& store,
                        const std::string& path,
                        const std::function<void()>& poll) {
  change_consolidated(call, store, path, poll, true);
}

void consolidate_metadata(const Store& store,
                          std::string_view path,
                          const std::function<void()>& poll) {
  const std::string clean = node_path(path);
  const std::string where = "[consolidate_metadata] " + place_of(store, clean);
  if (store.read_only())
    throw Error(ErrorCode::permission_denied, where + " is open for reading only");
  const auto root = find_node(store, clean, std::nullopt);
  if (!root || root->type != NodeType::group)
    throw Error(ErrorCode::not_found, where + ": there is no group");
  // The nodes below are read as they are; only the group's own documents are this call's.
  again_when_forestalled(poll, OnDoubt::again, [&] {
    NodeChange change(
        "consolidate_metadata", store, clean, NodeType::group, root->zarr_format, poll);
    NodeMap nodes;
    WalkLimit limit;
    gather(store, clean, "", root->zarr_format, limit, nodes);
    store_consolidated(where, store, clean, change, nodes);
  });
}

}  // namespace headrace
