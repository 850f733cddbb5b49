#pragma once

// Where nodes lie in a store and what their documents say.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "format/metadata.h"
#include "headrace/store.h"

namespace headrace {

struct NodeLeftOut;  // headrace/array.h

// A node's documents, from the store or from consolidated metadata.
struct NodeDocuments {
  NodeType type = NodeType::group;
  int zarr_format = 3;
  std::string document;           // zarr.json, .zarray or .zgroup
  std::string attributes = "{}";  // v2: .zattrs
};

// By which they are replaced on condition; empty: there is no such document, or the store cannot
// tell.
struct NodeVersions {
  std::string document;
  std::string attributes;
  bool has_attributes = false;  // v2: whether there is a .zattrs
};

// By path relative to a group.
using NodeMap = std::map<std::string, NodeDocuments, std::less<>>;

// A path as users write it, "/a//b/", to "a/b". invalid_argument for what could leave the store.
std::string node_path(std::string_view path);

// "a/b" + "c/0/1" -> "a/b/c/0/1"; "" + key -> key.
std::string join_key(std::string_view path, std::string_view key);

// Those of the groups that a node lies in, outermost first: "", "a", "a/b" for "a/b/c".
std::vector<std::string> groups_above(const std::string& path);

// "file:///data/x.zarr 'a/b'", for messages.
std::string place_of(const Store& store, std::string_view path);

// Whether a place across a network is a repository of Icechunk; false where that cannot be asked.
// Of a folder its URL tells.
bool is_icechunk_elsewhere(const Store& store);

// Of the node's own document: zarr.json, .zarray or .zgroup.
const char* document_name(const NodeDocuments& node);

std::optional<std::string> read_document(const Store& store, const std::string& key);
// Past what a cache keeps.
std::optional<std::string> read_latest(const Store& store,
                                       const std::string& key,
                                       std::string* version = nullptr);

// Without a format v3 is looked for first, then v2: where both are, v3 counts, as in zarr-python.
// A v2 array counts before a v2 group.
std::optional<NodeDocuments> find_node(const Store& store,
                                       const std::string& path,
                                       std::optional<int> zarr_format);

// A node of one kind and format as the store has it now, past caches.
std::optional<NodeDocuments> find_latest(const Store& store,
                                         const std::string& path,
                                         NodeType type,
                                         int zarr_format,
                                         NodeVersions* versions = nullptr);

// Parse documents; what is wrong with them is told with their key.
ArrayMetadata array_metadata_of(const Store& store,
                                const std::string& path,
                                const NodeDocuments& node);
GroupMetadata group_metadata_of(const Store& store,
                                const std::string& path,
                                const NodeDocuments& node);

// The documents of an array.
NodeDocuments documents_of(const ArrayMetadata& metadata);
// Writes the documents of a node. v2: attributes come first, so that a crash leaves no node without
// those that it was made with.
void store_documents(const Store& store, const std::string& path, const NodeDocuments& node);
// The same of one that is not there yet, where the store knows conditions; false when another
// writer has made it meanwhile. v2: the document says whose node it is. Attributes that lie there
// without one, of a writer that was killed, are replaced: where two writers are at it at once, they
// may be the other's.
bool store_new_documents(const Store& store, const std::string& path, const NodeDocuments& node);

// What a listing does with a node whose document is malformed.
enum class Malformed {
  raise,
  list,  // as an array: whoever opens it hears what is wrong, and the others can still be seen
};

// `unsupported` where groups nest deeper than kMaxGroupDepth: a walk of them would not end soon.
void check_depth(const Store& store, std::string_view path);

// The nodes directly under a group in the store, sorted by name. Keys and folders that are no node
// of that format (NCZarr's, chunks, notes) are passed over, and so are links that lead back to the
// group or one it is in: a walk would never end.
std::vector<std::pair<std::string, NodeDocuments>> list_nodes(const Store& store,
                                                              const std::string& path,
                                                              int zarr_format,
                                                              Malformed malformed);
// The same, with the nodes of consolidated metadata that the listing lacks: some servers list a
// part of what they have. `left_out` is for what is left out; null where nobody asks, as folders
// are looked into for it.
std::vector<std::pair<std::string, NodeDocuments>> list_nodes(const Store& store,
                                                              const std::string& path,
                                                              int zarr_format,
                                                              const NodeMap* consolidated,
                                                              std::vector<NodeLeftOut>* left_out);
// The names of those links.
std::vector<std::string> list_links_back(const Store& store, const std::string& path);

// Counts what a walk comes by. Groups that link to each other make more paths than memory holds,
// and none of them need lead back.
class WalkLimit {
 public:
  explicit WalkLimit(std::size_t max_nodes = kMaxWalkNodes) : max_nodes_(max_nodes) {}
  // `unsupported` for one node too many, below this one.
  void count(const Store& store, std::string_view path);

 private:
  const std::size_t max_nodes_;
  std::size_t n_ = 0;
};

// The nodes below a group as its consolidated metadata have them; nothing when there are none.
std::optional<NodeMap> consolidated_nodes(const Store& store,
                                          const std::string& path,
                                          const GroupMetadata& group);

}  // namespace headrace
