#include "engine/node/create.h"

#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "engine/node/catalog.h"
#include "engine/node/consolidate.h"
#include "engine/node/group_state.h"
#include "engine/node/remove.h"
#include "engine/node/removed.h"
#include "engine/request/config.h"

namespace headrace {
namespace {

void check_store_writable(const char* call, const Store& store) {
  if (store.read_only()) {
    throw Error(ErrorCode::permission_denied,
                std::string("[") + call + "] " + store.url() + " is open for reading only");
  }
}

NodeDocuments documents_of_group(int zarr_format, const std::string& attributes) {
  const bool is_v3 = zarr_format == 3;
  return {NodeType::group,
          zarr_format,
          is_v3 ? write_group_v3(attributes) : write_group_v2(),
          attributes};
}

// False: another writer has made it meanwhile.
bool store_node(const Store& store,
                const std::string& path,
                const NodeLock& lock,
                const NodeDocuments& documents) {
  if (!lock.excludes_processes() && store.driver().write_conditions().missing) {
    return store_new_documents(store, path, documents);
  }
  store_documents(store, path, documents);
  return true;
}

// The groups above `path` that are missing; invalid_argument where what is there can have no such
// member.
std::vector<std::string> missing_above(const std::string& where,
                                       const Store& store,
                                       const std::string& path,
                                       int zarr_format) {
  std::vector<std::string> missing;
  for (std::string& above : groups_above(path)) {
    const auto node = find_node(store, above, std::nullopt);
    if (!node) {
      missing.push_back(std::move(above));
    } else if (node->type == NodeType::array) {
      throw Error(ErrorCode::invalid_argument,
                  where + "'" + above + "' is an array, and only groups have members");
    } else if (node->zarr_format != zarr_format) {
      throw Error(ErrorCode::invalid_argument,
                  where + "expected zarr_format " + std::to_string(node->zarr_format) +
                      " as that of the group '" + above + "', got " + std::to_string(zarr_format));
    }
  }
  return missing;
}

void refuse_existing(const std::string& where, const Store& store, const std::string& path) {
  const auto node = find_node(store, path, std::nullopt);
  if (!node) return;
  throw Error(ErrorCode::invalid_argument,
              where + (node->type == NodeType::group ? "a group" : "an array") +
                  " is there already: overwrite=True, or mode \"w\", replaces it");
}

void refuse_leftovers(const std::string& where,
                      const Store& store,
                      const std::string& path,
                      const ArrayMetadata& made,
                      const std::function<void()>& poll) {
  if (!find_leftover(store, path, made)) return;
  // A node that others are just making or removing may look like none.
  const NodeLock lock(store, path, poll);
  refuse_existing(where, store, path);
  const auto key = find_leftover(store, path, made);
  if (!key) return;
  throw Error(ErrorCode::invalid_argument,
              where + "chunks of an array that is gone lie there ('" + *key +
                  "' is one), and would be elements of the new one: overwrite=True, or mode \"w\", "
                  "removes them");
}

// What lies behind a link is not of this store.
void refuse_links_above(const std::string& where, const Store& store, const std::string& path) {
  for (const std::string& above : groups_above(path)) {
    if (above.empty() || !store.driver().is_link(above)) continue;
    throw Error(ErrorCode::io,
                where + "'" + above + "' is a symbolic link, and nothing behind it is overwritten",
                ELOOP);
  }
}

}  // namespace

NewNode prepare_node(const char* call,
                     const Store& store,
                     const std::string& path,
                     int zarr_format,
                     bool overwrite,
                     const std::function<void()>& poll,
                     const ArrayMetadata* made) {
  check_store_writable(call, store);
  const std::string where = std::string("[") + call + "] " + place_of(store, path) + ": ";
  // All that can be refused is, before anything is changed.
  const std::vector<std::string> missing = missing_above(where, store, path, zarr_format);
  if (overwrite) {
    refuse_links_above(where, store, path);
    try {
      check_removable(call, store, path, made);
    } catch (const Error&) {
      // A node that others are just making or removing may look like none.
      const NodeLock lock(store, path, poll);
      check_removable(call, store, path, made);
    }
  } else {
    refuse_existing(where, store, path);
    if (made != nullptr) refuse_leftovers(where, store, path, *made, poll);
  }
  // A lock at a time: who overwrites a group waits for those of the nodes below while holding its.
  for (const std::string& above : missing) {
    const NodeLock lock(store, above, poll, MissingFolder::make);
    if (!missing_above(where, store, join_key(above, "x"), zarr_format).empty())
      store_node(store, above, lock, documents_of_group(zarr_format, "{}"));
  }
  if (!overwrite) {
    NodeLock lock(store, path, poll, MissingFolder::make);
    refuse_existing(where, store, path);
    return {std::move(lock)};
  }
  LeftConsolidated left(call, store, path, poll);
  if (!path.empty() && store.driver().is_link(path)) store.erase(path);
  NodeLock lock(store, path, poll, MissingFolder::make);
  remove_node(call, store, path, poll, made);
  return {std::move(lock), overwrite, left.done()};
}

void NewNode::store(const char* call,
                    const Store& store,
                    const std::string& path,
                    const NodeDocuments& documents) const {
  if (overwrite) return store_documents(store, path, documents);
  if (store_node(store, path, lock, documents)) return;
  const std::string where = std::string("[") + call + "] " + place_of(store, path) + ": ";
  refuse_existing(where, store, path);
  throw Error(ErrorCode::conflict, where + "another writer was at it at the same time");
}

namespace {

void make_node(const char* call,
               const Store& store,
               const std::string& path,
               const NodeDocuments& documents,
               bool overwrite,
               const std::function<void()>& poll,
               const ArrayMetadata* made) {
  bool is_consolidated = false;
  {
    const NewNode node =
        prepare_node(call, store, path, documents.zarr_format, overwrite, poll, made);
    node.store(call, store, path, documents);
    is_consolidated = node.is_consolidated;
  }
  if (is_consolidated) enter_consolidated(call, store, path, poll);
}

}  // namespace

Array create_array(const Store& store, std::string_view path, const CreateOptions& options) {
  const std::string clean = node_path(path);
  ArrayMetadata metadata;
  try {
    metadata = new_array_metadata(options);
  } catch (const Error& e) {
    throw e.with_context("[create_array] " + place_of(store, clean));
  }
  make_node("create_array",
            store,
            clean,
            documents_of(metadata),
            options.overwrite,
            options.poll,
            &metadata);
  auto shared = std::make_shared<ArrayShared>(store, clean, std::move(metadata));
  look_for_removal(*shared);
  ArrayState::Choice choice;
  choice.write_empty_chunks = options.write_empty_chunks;
  return Array(std::make_shared<ArrayState>(std::move(shared), std::move(choice)));
}

Group create_group(const Store& store,
                   std::string_view path,
                   std::string_view attributes_json,
                   int zarr_format,
                   bool overwrite,
                   const std::function<void()>& poll) {
  const std::string clean = node_path(path);
  if (zarr_format != 2 && zarr_format != 3) {
    throw Error(ErrorCode::invalid_argument,
                "[create_group] zarr_format: expected 2 or 3, got " + std::to_string(zarr_format));
  }
  const std::string attributes =
      attributes_json.empty() ? "{}"
                              : checked_json_object(attributes_json, "[create_group] attributes");
  make_node("create_group",
            store,
            clean,
            documents_of_group(zarr_format, attributes),
            overwrite,
            poll,
            nullptr);
  OpenOptions options;
  options.zarr_format = zarr_format;
  return open_group(store, clean, options);
}

}  // namespace headrace
