#include <memory>
#include <utility>

#include "engine/node/catalog.h"
#include "engine/node/group_state.h"
#include "engine/node/removed.h"
#include "engine/request/array_state.h"
#include "engine/request/config.h"
#include "headrace/array.h"

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
  } else if (path.empty() && is_icechunk_elsewhere(store)) {
    message += "it is a repository of Icechunk, which icechunk+" + store.url() + " opens";
  } else if (zarr_format == 3) {
    message += "there is no zarr.json";
  } else {
    message += zarr_format == 2 ? "there is neither .zarray nor .zgroup"
                                : "there is no zarr.json, .zarray or .zgroup";
  }
  throw Error(ErrorCode::not_found, message);
}

}  // namespace

Array make_array(const Store& store,
                 const std::string& path,
                 const NodeDocuments& node,
                 const OpenOptions& options) {
  check_implementations(options.implementations, "[open_array]");
  auto shared = std::make_shared<ArrayShared>(
      store, path, array_metadata_of(store, path, node), options.metadata_json.empty());
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
    return make_array(store, clean, {NodeType::array, format, options.metadata_json}, options);
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

}  // namespace headrace
