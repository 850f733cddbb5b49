#include "engine/node/catalog.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <utility>

#include "base/limits.h"
#include "base/memory_errors.h"
#include "headrace/array.h"
#include "store/store.h"

namespace headrace {
namespace {

constexpr const char* kV3Document = "zarr.json";

// Runs a parser over a stored document; its errors gain the document's key. A size that overflows
// or a path that leaves the store is no fault of the call here but of the document.
template <typename F>
auto with_place(const Store& store, const std::string& key, F&& parse) {
  try {
    return with_memory_errors([&] { return parse(); });
  } catch (const Error& e) {
    const ErrorCode code = e.code() == ErrorCode::invalid_argument ? ErrorCode::corrupt : e.code();
    // Parsers of documents begin with the document's own name, which the key ends in.
    std::string what = e.what();
    const std::string own = key.substr(key.rfind('/') + 1) + ": ";
    if (what.starts_with(own)) what.erase(0, own.size());
    throw Error(code, "[open] " + store.url() + ' ' + key + ": " + what, e.os_error());
  }
}

std::string read_v2_attributes(const Store& store, const std::string& path) {
  const std::string key = join_key(path, ".zattrs");
  const auto text = read_document(store, key);
  if (!text) return "{}";
  return with_place(store, key, [&] { return checked_json_object(*text, "attributes"); });
}

std::optional<NodeDocuments> find_v3(const Store& store, const std::string& path) {
  const std::string key = join_key(path, kV3Document);
  auto text = read_document(store, key);
  if (!text) return std::nullopt;
  const NodeType type = with_place(store, key, [&] { return v3_node_type(*text); });
  return NodeDocuments{type, 3, std::move(*text), "{}"};
}

std::optional<NodeDocuments> find_v2(const Store& store, const std::string& path) {
  for (const NodeType type : {NodeType::array, NodeType::group}) {
    NodeDocuments node{type, 2, {}, {}};
    auto text = read_document(store, join_key(path, document_name(node)));
    if (!text) continue;
    node.document = std::move(*text);
    node.attributes = read_v2_attributes(store, path);
    return node;
  }
  return std::nullopt;
}

NodeMap nodes_of_v3(const std::map<std::string, std::string>& documents,
                    const Store& store,
                    const std::string& key) {
  NodeMap nodes;
  for (const auto& entry : documents) {
    const auto& name = entry.first;
    const auto& document = entry.second;
    with_place(store, key + " consolidated '" + name + '\'', [&] {
      nodes.emplace(node_path(name), NodeDocuments{v3_node_type(document), 3, document, "{}"});
    });
  }
  return nodes;
}

NodeMap nodes_of_v2(std::map<std::string, V2Node> found) {
  NodeMap nodes;
  for (auto& [name, texts] : found) {
    const bool is_array = !texts.zarray.empty();
    if (name.empty() || (!is_array && texts.zgroup.empty())) continue;
    nodes.emplace(node_path(name),
                  NodeDocuments{is_array ? NodeType::array : NodeType::group,
                                2,
                                std::move(is_array ? texts.zarray : texts.zgroup),
                                texts.zattrs.empty() ? "{}" : std::move(texts.zattrs)});
  }
  return nodes;
}

}  // namespace

const char* document_name(const NodeDocuments& node) {
  if (node.zarr_format == 3) return kV3Document;
  return node.type == NodeType::array ? ".zarray" : ".zgroup";
}

std::string join_key(std::string_view path, std::string_view key) {
  std::string joined;
  joined.reserve(path.size() + key.size() + 1);
  joined.append(path);
  if (!path.empty()) joined += '/';
  joined.append(key);
  return joined;
}

std::vector<std::string> groups_above(const std::string& path) {
  std::vector<std::string> result;
  if (path.empty()) return result;
  result.emplace_back();
  for (std::size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1))
    result.push_back(path.substr(0, at));
  return result;
}

std::string node_path(std::string_view path) {
  std::string result;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (end > at) {
      if (!result.empty()) result += '/';
      result += path.substr(at, end - at);
    }
    at = end + 1;
  }
  if (!result.empty()) check_key(result);
  return result;
}

std::string place_of(const Store& store, std::string_view path) {
  return path.empty() ? store.url() : store.url() + " '" + std::string(path) + '\'';
}

bool is_icechunk_elsewhere(const Store& store) {
  if (!store.across_network()) return false;
  try {
    if (store.exists("refs/branch.main/ref.json")) return true;  // version 1
    const auto repo = store.open("repo");
    std::array<std::byte, 3> begin{};
    if (!repo || repo->size() < begin.size()) return false;
    repo->read(0, begin);
    return text_of(begin) == "ICE";
  } catch (const Error&) {
    return false;
  }
}

namespace {

template <typename Get>
std::optional<std::string> bounded_document(const Store& store, Get get) {
  Buffer bytes;
  try {
    if (!get(bytes)) return std::nullopt;
  } catch (const Error& error) {
    if (!is_too_large(error)) throw;
    throw error.with_context("[open] " + store.url() + ": no metadata document that is read (" +
                             "large data belong into arrays)");
  }
  return std::string(text_of(bytes));
}

}  // namespace

std::optional<std::string> read_document(const Store& store, const std::string& key) {
  return bounded_document(store, [&](Buffer& into) {
    return store.driver().get_within(key, into, kMaxDocumentNbytes);
  });
}

std::optional<std::string> read_latest(const Store& store,
                                       const std::string& key,
                                       std::string* version) {
  return bounded_document(store, [&](Buffer& into) {
    if (version == nullptr) return store.driver().get_latest(key, into, kMaxDocumentNbytes);
    return store.driver().get_versioned(key, into, kMaxDocumentNbytes, *version);
  });
}

std::optional<NodeDocuments> find_latest(const Store& store,
                                         const std::string& path,
                                         NodeType type,
                                         int zarr_format,
                                         NodeVersions* versions) {
  NodeDocuments node{type, zarr_format, {}, "{}"};
  const std::string key = join_key(path, document_name(node));
  auto document = read_latest(store, key, versions ? &versions->document : nullptr);
  if (!document) return std::nullopt;
  node.document = std::move(*document);
  if (zarr_format == 3) {
    const NodeType found = with_place(store, key, [&] { return v3_node_type(node.document); });
    return found == type ? std::optional(std::move(node)) : std::nullopt;
  }
  const std::string attributes_key = join_key(path, ".zattrs");
  if (auto attributes =
          read_latest(store, attributes_key, versions ? &versions->attributes : nullptr)) {
    if (versions) versions->has_attributes = true;
    with_place(store, attributes_key, [&] { checked_json_object(*attributes, "attributes"); });
    node.attributes = std::move(*attributes);
  }
  return node;
}

std::optional<NodeDocuments> find_node(const Store& store,
                                       const std::string& path,
                                       std::optional<int> zarr_format) {
  if (zarr_format && *zarr_format != 2 && *zarr_format != 3) {
    throw Error(ErrorCode::invalid_argument,
                "zarr_format: expected 2 or 3, got " + std::to_string(*zarr_format));
  }
  if (zarr_format != 2) {
    if (auto node = find_v3(store, path)) return node;
  }
  return zarr_format == 3 ? std::nullopt : find_v2(store, path);
}

ArrayMetadata array_metadata_of(const Store& store,
                                const std::string& path,
                                const NodeDocuments& node) {
  return with_place(store, join_key(path, document_name(node)), [&] {
    return node.zarr_format == 3 ? parse_array_v3(node.document)
                                 : parse_array_v2(node.document, node.attributes);
  });
}

GroupMetadata group_metadata_of(const Store& store,
                                const std::string& path,
                                const NodeDocuments& node) {
  return with_place(store, join_key(path, document_name(node)), [&] {
    return node.zarr_format == 3 ? parse_group_v3(node.document)
                                 : parse_group_v2(node.document, node.attributes);
  });
}

NodeDocuments documents_of(const ArrayMetadata& metadata) {
  return {NodeType::array, metadata.zarr_format, metadata.document, metadata.attributes};
}

void store_documents(const Store& store, const std::string& path, const NodeDocuments& node) {
  StoreDriver& driver = store.driver();
  if (node.zarr_format == 2) driver.set(join_key(path, ".zattrs"), bytes_of(node.attributes));
  driver.set(join_key(path, document_name(node)), bytes_of(node.document));
}

namespace {

// False where one is there.
bool set_new(StoreDriver& driver, const std::string& key, const std::string& text) {
  const ConstBytes bytes = bytes_of(text);
  try {
    driver.set_if(key, {&bytes, 1}, WriteCondition::if_missing());
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) {
      driver.set(key, bytes);  // by this server
      return true;
    }
    if (error.code() != ErrorCode::conflict && !is_in_doubt(error)) throw;
    return false;
  }
}

}  // namespace

bool store_new_documents(const Store& store, const std::string& path, const NodeDocuments& node) {
  StoreDriver& driver = store.driver();
  const std::string document_key = join_key(path, document_name(node));
  if (node.zarr_format == 2) {
    const std::string key = join_key(path, ".zattrs");
    if (!set_new(driver, key, node.attributes)) {
      if (driver.exists(document_key)) return false;
      driver.set(key, bytes_of(node.attributes));
    }
  }
  return set_new(driver, document_key, node.document);
}

void check_depth(const Store& store, std::string_view path) {
  const auto depth = static_cast<std::size_t>(std::ranges::count(path, '/')) + !path.empty();
  if (depth <= kMaxGroupDepth) return;
  throw Error(ErrorCode::unsupported,
              "[members] " + place_of(store, path) + ": groups nest deeper than " +
                  std::to_string(kMaxGroupDepth) + ": open one further down as the store");
}

void WalkLimit::count(const Store& store, std::string_view path) {
  if (++n_ <= max_nodes_) return;
  throw Error(ErrorCode::unsupported,
              "[members] " + place_of(store, path) + ": more than " + std::to_string(max_nodes_) +
                  " groups and arrays below one group: open one further down");
}

namespace {

using NamedNodes = std::vector<std::pair<std::string, NodeDocuments>>;

std::vector<DirEntry> entries_of(const Store& store, const std::string& path) {
  check_depth(store, path);
  return store.driver().list_dir(path.empty() ? "" : path + '/');
}

NamedNodes nodes_among(const std::vector<DirEntry>& entries,
                       const Store& store,
                       const std::string& path,
                       int zarr_format,
                       Malformed malformed) {
  NamedNodes nodes;
  WalkLimit limit(kMaxMembers);
  for (const DirEntry& entry : entries) {
    if (!entry.is_prefix || entry.leads_back) continue;
    try {
      auto node = find_node(store, join_key(path, entry.name), zarr_format);
      if (!node) continue;
      nodes.emplace_back(entry.name, std::move(*node));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::corrupt || malformed == Malformed::raise) throw;
      nodes.emplace_back(entry.name, NodeDocuments{NodeType::array, zarr_format, {}, {}});
    }
    limit.count(store, path);
  }
  return nodes;
}

constexpr int kFoldersLookedInto = 1000;  // of a group, in search of nodes

// A folder's first node, by its path, in a folder that is none itself; what tools keep for
// themselves (.git, the notes of a rechunk) has no nodes of anybody's.
std::optional<std::string> node_within(const Store& store, const std::string& path, int& folders) {
  for (const DirEntry& entry : store.driver().list_dir(path + '/')) {
    if (!entry.is_prefix || entry.leads_back || entry.name.starts_with('.')) continue;
    if (--folders < 0) return std::nullopt;
    const std::string below = join_key(path, entry.name);
    for (const char* name : {"zarr.json", ".zarray", ".zgroup"}) {
      if (store.exists(join_key(below, name))) return below;
    }
    if (auto found = node_within(store, below, folders)) return found;
  }
  return std::nullopt;
}

// "0.1", "0", "c" and "c.0", as chunks and their folders are called.
bool names_chunks(const DirEntry& entry) {
  std::string_view name = entry.name;
  if (name == "c") return entry.is_prefix;
  if (name.starts_with("c.")) name.remove_prefix(2);
  return !name.empty() && name.find_first_not_of("0123456789.") == name.npos;
}

// Why a folder is left out that is no node of the format; nothing where none lies there.
std::optional<std::string> why_left_out(const Store& store,
                                        const std::string& path,
                                        int zarr_format,
                                        int& folders) {
  try {
    if (const auto other = find_node(store, path, 5 - zarr_format)) {
      return std::string(other->type == NodeType::group ? "a group" : "an array") + " of Zarr " +
             std::to_string(5 - zarr_format) + " in a group of Zarr " + std::to_string(zarr_format);
    }
  } catch (const Error& e) {
    if (e.code() != ErrorCode::corrupt) throw;
    return e.what();
  }
  const std::string what = "a folder without a group's document";
  try {
    if (const auto node = node_within(store, path, folders)) return what + ", which has " + *node;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::permission_denied) throw;
    return what + ": " + e.what();
  }
  if (std::ranges::any_of(store.driver().list_dir(path + '/'), names_chunks))
    return "a folder of what look like chunks, without an array's document";
  if (folders < 0) return what + ", not looked through: there are too many";
  return std::nullopt;
}

// Of the entries that are none of the nodes, what looks like one.
std::vector<NodeLeftOut> left_out_among(const std::vector<DirEntry>& entries,
                                        const Store& store,
                                        const std::string& path,
                                        int zarr_format,
                                        const NamedNodes& nodes) {
  std::vector<NodeLeftOut> left_out;
  int folders = kFoldersLookedInto;
  std::set<std::string_view> known;
  for (const auto& [name, node] : nodes) known.insert(name);
  for (const DirEntry& entry : entries) {
    if (!entry.is_prefix || known.contains(entry.name)) continue;
    if (entry.leads_back) {
      left_out.push_back({entry.name, "a link that leads back to a group it is in"});
    } else if (!entry.name.starts_with('.')) {
      if (auto why = why_left_out(store, join_key(path, entry.name), zarr_format, folders))
        left_out.push_back({entry.name, std::move(*why)});
    }
  }
  return left_out;
}

}  // namespace

NamedNodes list_nodes(const Store& store,
                      const std::string& path,
                      int zarr_format,
                      Malformed malformed) {
  return nodes_among(entries_of(store, path), store, path, zarr_format, malformed);
}

NamedNodes list_nodes(const Store& store,
                      const std::string& path,
                      int zarr_format,
                      const NodeMap* consolidated,
                      std::vector<NodeLeftOut>* left_out) {
  const std::vector<DirEntry> entries = entries_of(store, path);
  NamedNodes nodes = nodes_among(entries, store, path, zarr_format, Malformed::list);
  std::vector<NodeLeftOut> others;
  if (left_out) others = left_out_among(entries, store, path, zarr_format, nodes);
  if (consolidated) {
    std::set<std::string, std::less<>> known;
    for (const auto& [name, node] : nodes) known.insert(name);
    for (const NodeLeftOut& other : others) known.insert(other.name);
    for (const auto& [name, node] : *consolidated) {
      if (name.find('/') != std::string::npos || known.contains(name)) continue;
      if (auto found = find_node(store, join_key(path, name), zarr_format)) {
        nodes.emplace_back(name, std::move(*found));
      } else {
        others.push_back({name, "named by consolidated metadata alone: there is no such node"});
      }
    }
    std::ranges::sort(nodes, {}, [](const auto& node) -> const std::string& { return node.first; });
  }
  if (left_out) left_out->insert(left_out->end(), others.begin(), others.end());
  return nodes;
}

std::vector<std::string> list_links_back(const Store& store, const std::string& path) {
  std::vector<std::string> names;
  for (DirEntry& entry : store.driver().list_dir(path.empty() ? "" : path + '/')) {
    if (entry.leads_back) names.push_back(std::move(entry.name));
  }
  return names;
}

std::optional<NodeMap> consolidated_nodes(const Store& store,
                                          const std::string& path,
                                          const GroupMetadata& group) {
  if (group.zarr_format == 3) {
    if (!group.consolidated) return std::nullopt;
    return nodes_of_v3(*group.consolidated, store, join_key(path, kV3Document));
  }
  const std::string key = join_key(path, ".zmetadata");
  const auto text = read_document(store, key);
  if (!text) return std::nullopt;
  return with_place(store, key, [&] { return nodes_of_v2(parse_consolidated_v2(*text)); });
}

}  // namespace headrace
