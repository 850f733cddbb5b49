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

}  // namespace

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
    const NodeDocuments& now = change.documents();
    if (root->zarr_format == 3)
      change.store(consolidated_v3(now, nodes), now.attributes);
    else {
      const std::string document = consolidated_v2(now, nodes);
      check_readable(where, document);
      store.driver().set(join_key(clean, ".zmetadata"), bytes_of(document));
    }
  });
}

}  // namespace headrace
