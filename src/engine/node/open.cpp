#include <algorithm>
#include <memory>
#include <utility>

#include "engine/node/catalog.h"
#include "engine/node/group_state.h"
#include "engine/node/removed.h"
#include "engine/request/array_state.h"
#include "engine/request/config.h"
#include "headrace/array.h"
#include "store/store.h"

namespace headrace {
namespace {

[[noreturn]] void throw_not_found(const char* call,
                                  const char* kind,
                                  const Store& store,
                                  const std::string& path,
                                  std::optional<int> zarr_format,
                                  const std::optional<NodeDocuments>& found) {
  std::string message =
      std::string("[") + call + "] no " + kind + " at " + place_of(store, path) + ": ";
  if (found) {
    message += found->type == NodeType::group ? "it is a group" : "it is an array";
  } else {
    message += what_is_there(store, path, zarr_format);
  }
  throw Error(ErrorCode::not_found, message);
}

// "zarr.json, .zarray or .zgroup".
std::string document_names(std::optional<int> zarr_format, const char* conjunction) {
  if (zarr_format == 3) return "zarr.json";
  return std::string(zarr_format == 2 ? "" : "zarr.json, ") + ".zarray " + conjunction + " .zgroup";
}

// "a.txt, b/ and 4 more".
std::string listed(const std::vector<DirEntry>& entries) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(entries.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + entries[i].name + (entries[i].is_prefix ? "/" : "");
  if (entries.size() > kShown) text += " and " + std::to_string(entries.size() - kShown) + " more";
  return text;
}

}  // namespace

Array make_array(const Store& store,
                 const std::string& path,
                 const NodeDocuments& node,
                 const OpenOptions& options) {
  check_implementations(options.implementations, "[open_array]");
  auto shared = std::make_shared<ArrayShared>(store,
                                              path,
                                              array_metadata_of(store, path, node),
                                              options.metadata_json.empty() || options.as_opened);
  look_for_removal(*shared);
  ArrayState::Choice choice;
  choice.device = options.device;
  choice.read_only = options.read_only || store.read_only();
  choice.write_empty_chunks = options.write_empty_chunks;
  choice.shard_order = options.shard_order;
  choice.implementations = options.implementations;
  return Array(std::make_shared<ArrayState>(std::move(shared), std::move(choice)));
}

Group make_group(const Store& store,
                 const std::string& path,
                 const NodeDocuments& node,
                 const OpenOptions& options) {
  check_implementations(options.implementations, "[open_group]");
  GroupMetadata metadata = group_metadata_of(store, path, node);
  std::shared_ptr<const NodeMap> nodes;
  if (options.use_consolidated) {
    if (auto found = consolidated_nodes(store, path, metadata)) {
      nodes = std::make_shared<const NodeMap>(std::move(*found));
    }
  }
  metadata.consolidated.reset();  // `nodes` has them
  return Group(
      std::make_shared<GroupState>(store, path, std::move(metadata), std::move(nodes), options));
}

Array open_array(const Store& store, std::string_view path, const OpenOptions& options) {
  const std::string clean = node_path(path);
  if (!options.metadata_json.empty()) {
    const int format = options.zarr_format.value_or(3);
    NodeDocuments node{NodeType::array, format, options.metadata_json};
    if (!options.attributes_json.empty()) node.attributes = options.attributes_json;
    return make_array(store, clean, node, options);
  }
  const auto node = find_node(store, clean, options.zarr_format);
  if (!node || node->type != NodeType::array) {
    throw_not_found("open_array", "array", store, clean, options.zarr_format, node);
  }
  return make_array(store, clean, *node, options);
}

Group open_group(const Store& store, std::string_view path, const OpenOptions& options) {
  const std::string clean = node_path(path);
  const auto node = find_node(store, clean, options.zarr_format);
  if (!node || node->type != NodeType::group) {
    throw_not_found("open_group", "group", store, clean, options.zarr_format, node);
  }
  return make_group(store, clean, *node, options);
}

std::optional<bool> node_is_group(const Store& store,
                                  std::string_view path,
                                  std::optional<int> zarr_format) {
  const auto node = find_node(store, node_path(path), zarr_format);
  if (!node) return std::nullopt;
  return node->type == NodeType::group;
}

std::string what_is_there(const Store& store,
                          std::string_view path,
                          std::optional<int> zarr_format) {
  const std::string clean = node_path(path);
  const std::string url = store.url();
  if (names_metadata(clean.empty() ? url : clean))
    return "a node is opened by its folder, not by its document";
  if (clean.empty() && is_icechunk_elsewhere(store))
    return "it is a repository of Icechunk, which icechunk+" + url + " opens";
  const std::string lacks = "there is no " + document_names(zarr_format, "or");
  if (url.starts_with("http"))
    return "the server answers 404 for " + document_names(zarr_format, "and");
  if (store.across_network()) return lacks;
  try {
    const std::vector<DirEntry> entries = store.driver().list_dir(clean.empty() ? "" : clean + '/');
    if (!entries.empty()) return lacks + ", but " + listed(entries);
  } catch (const Error&) {
    return lacks;  // a store need not list
  }
  if (!clean.empty()) return "nothing is there";
  return url.starts_with("file:")  ? "the folder is empty"
         : url.starts_with("zip:") ? "the archive is empty"
                                   : "the store is empty";
}

std::vector<std::string> consolidated_names_beside(const Store& store, std::string_view path) {
  std::vector<std::string> names;
  if (!store.url().starts_with("http")) return names;
  try {
    const std::string clean = node_path(path);
    if (clean.empty() || names_metadata(clean)) return names;
    const std::string above = clean.substr(0, clean.rfind('/') + 1);  // "a/b/", or ""
    GroupMetadata root;
    root.zarr_format = 2;
    if (auto document = read_document(store, "zarr.json"))
      root = group_metadata_of(store, "", {NodeType::group, 3, std::move(*document)});
    const auto nodes = consolidated_nodes(store, "", root);
    if (!nodes || nodes->contains(clean)) return names;
    for (auto node = nodes->lower_bound(above); node != nodes->end(); ++node) {
      if (!node->first.starts_with(above)) break;
      if (node->first.find('/', above.size()) == std::string::npos)
        names.push_back(node->first.substr(above.size()));
    }
  } catch (const Error&) {
    names.clear();  // the error that the names would have been a part of is the one to be told
  }
  return names;
}

}  // namespace headrace
