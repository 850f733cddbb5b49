#include "engine/node/remove.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "engine/node/catalog.h"
#include "engine/node/create.h"
#include "engine/node/lock.h"
#include "engine/request/array_state.h"
#include "store/file.h"
#include "store/store.h"

namespace headrace {
namespace {

// The order in which they are removed.
constexpr const char* kDocuments[] = {".zmetadata", ".zattrs", ".zarray", ".zgroup", "zarr.json"};

bool is_document(std::string_view name) {
  return std::ranges::find(kDocuments, name) != std::end(kDocuments);
}

// "c", "c/0/12", "c.3", "0.1", "0/1": a chunk's key below its array in any encoding, and what it
// lies in. As they are written: without leading zeros.
bool is_chunk_key(std::string_view key) {
  if (key == "c") return true;
  if (key.starts_with("c/") || key.starts_with("c.")) key.remove_prefix(2);
  for (;;) {
    std::size_t digits = 0;
    while (digits < key.size() && key[digits] >= '0' && key[digits] <= '9') ++digits;
    if (digits == 0 || (digits > 1 && key[0] == '0')) return false;
    key.remove_prefix(digits);
    if (key.empty()) return true;
    if (key[0] != '/' && key[0] != '.') return false;
    key.remove_prefix(1);
  }
}

// Of a chunk beyond doubt, also where no document says so: a writer that came late has left it.
bool names_only_chunk(std::string_view key) {
  return is_chunk_key(key) && (key.starts_with("c/") || key.find('.') != std::string_view::npos);
}

// What a rechunk notes of its progress lies within the node that it writes.
bool is_progress(std::string_view key) {
  return key == ".rechunk" || key == ".rechunk/progress.json" || key == ".rechunk.json";
}

std::string_view folder_of(std::string_view key) {
  const std::size_t slash = key.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : key.substr(0, slash);
}

std::string_view name_of(std::string_view key) { return key.substr(key.rfind('/') + 1); }

// What lies in the folder of a node.
struct Contents {
  std::vector<StoredName> documents;
  std::vector<StoredName> own;        // but for documents
  std::vector<std::string> foreign;   // keys
  std::set<std::string> nodes_below;  // paths; of nodes within nodes the outer ones
};

bool is_array(const Store& store, const std::string& path) {
  if (store.exists(join_key(path, ".zarray"))) return true;
  const auto text = read_latest(store, join_key(path, "zarr.json"));
  // remove_contents() leaves attributes alone where it was cut off.
  if (!text)
    return store.exists(join_key(path, ".zattrs")) && !store.exists(join_key(path, ".zgroup"));
  try {
    return v3_node_type(*text) == NodeType::array;
  } catch (const Error&) {
    return true;  // malformed: the chunks below such a document are its own
  }
}

bool leads_to_node(const Store& store, const std::string& path) {
  return std::ranges::any_of(kDocuments,
                             [&](const char* name) { return store.exists(join_key(path, name)); });
}

// Whether a key is one of the array that is to be made, if it is an array.
bool is_chunk_of(const ArrayMetadata* made, std::string_view key) {
  return made != nullptr && made->chunk_keys.parse(key, made->ndim()).has_value();
}

Contents contents_of(const Store& store, const std::string& path, const ArrayMetadata* made) {
  const std::size_t prefix = path.empty() ? 0 : path.size() + 1;
  const std::vector<StoredName> names = store.driver().list_names(path);
  Contents contents;
  std::set<std::string, std::less<>> folders;  // of nodes
  for (const StoredName& name : names) {
    if (name.kind == StoredName::Kind::empty_folder || !is_document(name_of(name.key))) continue;
    folders.emplace(folder_of(name.key));
  }
  // The outermost node below `path` that the key lies in.
  const auto node_of = [&](std::string_view key) -> std::optional<std::string> {
    for (std::size_t slash = key.find('/', prefix); slash != std::string_view::npos;
         slash = key.find('/', slash + 1)) {
      const auto found = folders.find(key.substr(0, slash));
      if (found != folders.end()) return *found;
    }
    return std::nullopt;
  };
  const bool array = is_array(store, path);
  for (const StoredName& name : names) {
    if (auto below = node_of(name.key)) {
      contents.nodes_below.insert(std::move(*below));
      continue;
    }
    const std::string_view key = std::string_view(name.key).substr(prefix);
    const bool is_folder = name.kind == StoredName::Kind::empty_folder;
    if (!is_folder && is_document(key)) {
      contents.documents.push_back(name);
      // An empty folder would be in the way of a chunk of that name.
    } else if (((array || is_folder) && is_chunk_key(key)) || names_only_chunk(key) ||
               is_chunk_of(made, key) || is_progress(key) || (!is_folder && names_temporary(key)) ||
               (name.kind == StoredName::Kind::link && leads_to_node(store, name.key))) {
      contents.own.push_back(name);
    } else if (!is_folder) {
      contents.foreign.emplace_back(name.key);
    }
  }
  return contents;
}

// The document of that array without elements.
std::string emptied(const NodeDocuments& found, const ArrayMetadata& metadata) {
  if (metadata.ndim() > 0)
    return with_shape(found.document, Shape(metadata.ndim(), 0), metadata.chunk_edges);
  // Without dimensions it has one always.
  CreateOptions options;
  options.shape = {0};
  options.chunks = {1};
  options.dtype = DType::uint8;
  options.zarr_format = found.zarr_format;
  return new_array_metadata(options).document;
}

// Whoever looks meanwhile sees no fill values in the place of data, and after a crash the chunks
// that are left still belong to an array.
void shrink_to_nothing(const Store& store, const std::string& path) {
  for (const int format : {3, 2}) {
    const auto found = find_latest(store, path, NodeType::array, format);
    if (!found) continue;
    const ArrayMetadata metadata = array_metadata_of(store, path, *found);
    store.set(join_key(path, document_name(*found)), bytes_of(emptied(*found, metadata)));
  }
}

// Whoever holds it, a rechunk is not at work there.
LockAttempt lock_notes(const Store& store, const std::string& path) {
  LockAttempt notes = store.driver().try_lock(join_key(path, ".rechunk"), MissingFolder::leave);
  if (notes.state == LockAttempt::State::busy) {
    throw Error(ErrorCode::conflict,
                "[remove] " + place_of(store, path) + ": a rechunk is at work there");
  }
  return notes;
}

void remove_contents(const Store& store,
                     const std::string& path,
                     const std::string& kept,
                     const std::function<void()>& poll,
                     const ArrayMetadata* made = nullptr) {
  StoreDriver& driver = store.driver();
  const LockAttempt notes = lock_notes(store, path);
  Contents contents = contents_of(store, path, made);
  bool is_empty = true;
  try {
    if (!contents.own.empty()) shrink_to_nothing(store, path);
  } catch (const Error&) {
    is_empty = false;  // a malformed document or a full disk: overwriting is a way out of either
  }
  for (const std::string& node : contents.nodes_below) {
    const NodeLock lock(store, node, poll);
    remove_contents(store, node, kept, poll);
  }
  // No array is left without chunks that it had, whichever of these fails; and the next removal
  // knows the chunks that are left for those of an array, for Zarr 2 by the attributes.
  auto last = contents.documents.begin();
  if (!is_empty) {
    last = std::stable_partition(last, contents.documents.end(), [](const StoredName& name) {
      return name_of(name.key) != ".zattrs";
    });
  }
  driver.erase_names({contents.documents.begin(), last}, kept);
  driver.erase_names(contents.own, kept);
  driver.erase_names({last, contents.documents.end()}, kept);
}

// Whether a key looks like one of a node below `path`, or of that node itself.
bool is_own_below(std::string_view key, const std::string& path) {
  if (is_chunk_key(key.substr(path.empty() ? 0 : path.size() + 1))) return true;
  for (std::string_view node = folder_of(key); node.size() > path.size(); node = folder_of(node)) {
    const std::string_view rest = key.substr(node.size() + 1);
    if (is_document(rest) || is_chunk_key(rest) || is_progress(rest)) return true;
  }
  return false;
}

// Of a store across a network: one listing, and one request to remove all of it. Chunks of nobody
// are what a removal that was cut off has left, as its documents went first.
void remove_far(const Store& store, const std::string& path, const std::function<void()>& poll) {
  const Contents contents = contents_of(store, path, nullptr);
  const auto is_foreign = [&](const std::string& key) { return !is_own_below(key, path); };
  bool has_foreign = std::ranges::any_of(contents.foreign, is_foreign);
  for (const std::string& node : contents.nodes_below) {
    if (has_foreign) break;
    has_foreign = std::ranges::any_of(store.list(node + '/'), is_foreign);
  }
  if (has_foreign) return remove_contents(store, path, path, poll);
  const LockAttempt notes = lock_notes(store, path);
  // The metadata go first: what is left by a crash belongs to no array.
  for (const char* name : kDocuments) store.erase(join_key(path, name));
  store.erase_prefix(path.empty() ? "" : path + '/');
}

// Names of bare digits may be a user's folders, where users keep folders.
bool has_user_folders(const StoreDriver& driver) {
  return driver.local() && !driver.holds_only_keys();
}

bool names_node(const DirEntry& entry) {
  return entry.name == "zarr.json" || entry.name == ".zarray" || entry.name == ".zgroup";
}

// The key of a chunk below path/below that is of no node there.
std::optional<std::string> find_chunk(StoreDriver& driver,
                                      const std::string& path,
                                      const std::string& below,
                                      const ArrayMetadata& made) {
  const std::string folder = below.empty() ? path : join_key(path, below);
  const std::vector<DirEntry> entries = driver.list_dir(folder.empty() ? "" : folder + '/');
  if (std::ranges::any_of(entries, names_node)) return std::nullopt;
  const bool may_be_users = has_user_folders(driver);
  for (const DirEntry& entry : entries) {
    std::string key = join_key(below, entry.name);
    if (!is_chunk_key(key)) continue;
    const bool is_chunk = !may_be_users || names_only_chunk(key) || is_chunk_of(&made, key);
    // A store may say of objects, too, that they are prefixes.
    if (is_chunk && (!entry.is_prefix || driver.exists(join_key(path, key)))) return key;
    if (!entry.is_prefix || entry.leads_back) continue;
    if (std::ranges::count(key, '/') > static_cast<std::ptrdiff_t>(kMaxDimensions)) continue;
    if (may_be_users && key.front() != 'c' && made.chunk_keys.default_prefix) continue;
    if (auto found = find_chunk(driver, path, key, made)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_leftover(const Store& store,
                                         const std::string& path,
                                         const ArrayMetadata& made) {
  try {
    return find_chunk(store.driver(), path, "", made);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::nullopt;
  }
}

void check_removable(const char* call,
                     const Store& store,
                     const std::string& path,
                     const ArrayMetadata* made) {
  StoreDriver& driver = store.driver();
  const std::vector<DirEntry> entries = driver.list_dir(path.empty() ? "" : path + '/');
  if (entries.empty() || driver.holds_only_keys()) return;
  driver.erase_names({}, path);  // refuses the root of a file system, before it is walked
  if (leads_to_node(store, path)) return;
  const std::vector<StoredName> names = driver.list_names(path);
  // Chunks of nobody are what a removal that was cut off, or a writer that came late, has left; of
  // bare numbers that is certain across a network only, where no user keeps folders, and where they
  // would be chunks of the new array.
  const std::size_t prefix = path.empty() ? 0 : path.size() + 1;
  const auto is_left = [&](const StoredName& name) {
    const std::string_view key = std::string_view(name.key).substr(prefix);
    return has_user_folders(driver) ? names_only_chunk(key) || is_chunk_of(made, key)
                                    : is_chunk_key(key);
  };
  const auto is_file = [&](const StoredName& name) {
    return name.kind != StoredName::Kind::empty_folder && !names_temporary(name.key) &&
           !is_left(name);
  };
  if (std::ranges::none_of(names, is_file)) return;
  std::string found;
  constexpr std::size_t kNamed = 3;
  for (std::size_t i = 0; i < std::min(entries.size(), kNamed); ++i)
    found += (i == 0 ? "'" : ", '") + entries[i].name + '\'';
  if (entries.size() > kNamed) found += " and " + std::to_string(entries.size() - kNamed) + " more";
  throw Error(ErrorCode::invalid_argument,
              std::string("[") + call + "] " + place_of(store, path) +
                  " is no Zarr node and holds " + found +
                  ": overwriting removes arrays and groups only; take another path, or move these "
                  "files away first");
}

void remove_node(const char* call,
                 const Store& store,
                 const std::string& path,
                 const std::function<void()>& poll,
                 const ArrayMetadata* made) {
  check_removable(call, store, path, made);
  StoreDriver& driver = store.driver();
  if (!driver.local()) return remove_far(store, path, poll);
  remove_contents(store, path, path, poll, made);
  if (driver.holds_only_keys()) driver.erase_prefix(path.empty() ? "" : path + '/');
}

void remove_nodes(const Store& store, std::string_view path, const std::function<void()>& poll) {
  const std::string clean = node_path(path);
  StoreDriver& driver = store.driver();
  if (store.read_only())
    throw Error(ErrorCode::permission_denied, store.url() + " is open for reading only");
  if (!clean.empty() && driver.is_link(clean)) return store.erase(clean);
  // Some of the chunks of an array, which have no node of their own.
  const bool is_node = leads_to_node(store, clean);
  for (std::string_view above = folder_of(clean); !clean.empty() && !is_node;
       above = folder_of(above)) {
    const std::string_view rest =
        std::string_view(clean).substr(above.empty() ? 0 : above.size() + 1);
    if (is_chunk_key(rest) && is_array(store, std::string(above))) {
      const NodeLock lock(store, std::string(above), poll);
      return driver.erase_prefix(clean + '/');
    }
    if (above.empty() || leads_to_node(store, std::string(above))) break;
  }
  const NodeLock lock(store, clean, poll);
  remove_node("remove", store, clean, poll, nullptr);
  if (clean.empty()) return;
  const StoredName folder{clean, StoredName::Kind::empty_folder};
  if (driver.has_files()) driver.erase_names({&folder, 1}, folder_of(clean));
}

}  // namespace headrace
