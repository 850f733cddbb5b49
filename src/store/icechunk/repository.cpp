// Which snapshot is meant, and where its chunks are.

#include "store/icechunk/repository.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <list>
#include <map>
#include <utility>

#include "base/fork_mutex.h"
#include "base/limits.h"
#include "base/system.h"
#include "headrace/error.h"
#include "store/icechunk/flat_table.h"
#include "store/icechunk/metadata_file.h"
#include "store/icechunk/snapshot.h"
#include "store/key_list.h"
#include "store/reference/catalogue.h"
#include "store/reference/json_window.h"
#include "store/reference/kerchunk_json.h"
#include "store/reference/place.h"
#include "store/reference/targets.h"
#include "store/url.h"

namespace headrace {
namespace {

// Locations are URLs, whose paths are encoded; those of web servers stay so. One that was written
// by hand may have a '%' that encodes nothing.
std::string plain_location(const std::string& location) {
  if (location.starts_with("http")) return location;
  try {
    return percent_decode(location);
  } catch (const Error&) {
    return location;
  }
}

namespace repo_field {
constexpr unsigned kTags = 1, kBranches = 2, kSnapshots = 4, kStatus = 5;
}
namespace ref_field {
constexpr unsigned kName = 0, kSnapshot = 1;
}
constexpr unsigned kSnapshotInfoId = 0;
constexpr unsigned kAvailability = 0;  // of the status
constexpr std::uint8_t kOffline = 2;

constexpr std::uint64_t kMaxFileNbytes = std::uint64_t{4} << 30;
// Of manifests that are kept, as they lie in memory.
constexpr std::size_t kKeptManifestNbytes = std::size_t{512} << 20;

constexpr std::string_view kMetadata = "zarr.json";

// Of a store's URL, around the place of the repository.
constexpr std::string_view kSchemeBefore = "icechunk+";
constexpr std::string_view kSnapshotBefore = "?snapshot=";

struct Wanted {
  std::string branch{};
  std::string tag{};
  std::string snapshot{};
};

Buffer get_file(StoreDriver& store, const std::string& key) {
  Buffer bytes;
  if (!store.get_within(key, bytes, kMaxFileNbytes)) {
    throw Error(ErrorCode::corrupt, store.url() + ": the repository lacks its file " + key);
  }
  return bytes;
}

[[noreturn]] void throw_no_ref(const StoreDriver& store,
                               const char* kind,
                               const std::string& name) {
  throw Error(ErrorCode::not_found,
              store.url() + ": the repository has no " + kind + " \"" + name + "\"",
              ENOENT);
}

// Of version 2, in which one file has all branches and tags.
std::string snapshot_of_repo(const StoreDriver& store, ConstBytes file, const Wanted& wanted) {
  const Buffer bytes = unpack_icechunk_file(file, IcechunkFile::repo, store.url() + ": repo");
  const FlatTable repo = FlatTable::root(bytes);
  if (repo.has(repo_field::kStatus) &&
      repo.table(repo_field::kStatus).u8(kAvailability, 0) == kOffline) {
    throw Error(ErrorCode::permission_denied, store.url() + ": the repository is set offline");
  }
  const bool is_tag = !wanted.tag.empty();
  const std::string& name = is_tag ? wanted.tag : wanted.branch;
  const FlatVector refs = repo.vector(is_tag ? repo_field::kTags : repo_field::kBranches, 4);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    const FlatTable ref = refs.table(i);
    if (ref.string(ref_field::kName) != name) continue;
    const FlatVector snapshots = repo.vector(repo_field::kSnapshots, 4);
    const std::uint32_t number = ref.u32(ref_field::kSnapshot, 0);
    if (number >= snapshots.size()) {
      throw Error(ErrorCode::corrupt, store.url() + ": repo: a ref leads to no snapshot");
    }
    return icechunk_name(
        icechunk_id(snapshots.table(number).structure(kSnapshotInfoId, sizeof(IcechunkId))));
  }
  throw_no_ref(store, is_tag ? "tag" : "branch", name);
}

// Of version 1, in which each has a file.
std::string snapshot_of_ref_file(StoreDriver& store, const Wanted& wanted) {
  const bool is_tag = !wanted.tag.empty();
  const std::string& name = is_tag ? wanted.tag : wanted.branch;
  const std::string key = (is_tag ? "refs/tag." : "refs/branch.") + name + "/ref.json";
  Buffer file;
  if (name.find('/') != std::string::npos || !store.get_within(key, file, kMaxDocumentNbytes) ||
      (is_tag && store.exists(key + ".deleted"))) {
    throw_no_ref(store, is_tag ? "tag" : "branch", name);
  }
  JsonWindow json(source_of(text_of(file)), store.url() + ": " + key);
  json.take('{');
  std::string snapshot;
  for (bool first = true; json.next_element('}', first); first = false) {
    const bool is_snapshot = json.string() == "snapshot";
    json.take(':');
    if (is_snapshot) {
      snapshot = json.string();
    } else {
      json.raw_value();
    }
  }
  if (!is_icechunk_name(snapshot)) json.fail("names no snapshot");
  return snapshot;
}

std::string find_snapshot(StoreDriver& store, Wanted wanted) {
  const int given = (wanted.branch.empty() ? 0 : 1) + (wanted.tag.empty() ? 0 : 1) +
                    (wanted.snapshot.empty() ? 0 : 1);
  if (given > 1) {
    throw Error(ErrorCode::invalid_argument,
                store.url() + ": wanted one of the options branch, tag and snapshot");
  }
  if (!wanted.snapshot.empty()) {
    if (!is_icechunk_name(wanted.snapshot)) throw_no_ref(store, "snapshot", wanted.snapshot);
    if (!store.exists("snapshots/" + wanted.snapshot)) {
      throw_no_ref(store, "snapshot", wanted.snapshot);
    }
    return wanted.snapshot;
  }
  if (given == 0) wanted.branch = "main";
  Buffer repo;
  if (store.get_within("repo", repo, kMaxFileNbytes)) return snapshot_of_repo(store, repo, wanted);
  if (!wanted.tag.empty() || wanted.branch != "main" || store.exists("refs/branch.main/ref.json")) {
    return snapshot_of_ref_file(store, wanted);
  }
  throw Error(ErrorCode::not_found,
              store.url() + ": there is no Icechunk repository, or one without a branch \"main\"",
              ENOENT);
}

// "a/b/c/0/1" as the array "a/b" and its chunk.
struct ChunkKey {
  std::string_view path;
  std::vector<std::uint32_t> chunk;
};

bool split_chunk_key(std::string_view key, ChunkKey& into) {
  std::string_view numbers;
  if (key == "c") {
    into.path = {};
  } else if (key.ends_with("/c")) {
    into.path = key.substr(0, key.size() - 2);
  } else if (const std::size_t at = key.rfind("/c/"); at != std::string_view::npos) {
    into.path = key.substr(0, at);
    numbers = key.substr(at + 3);
  } else if (key.starts_with("c/")) {
    into.path = {};
    numbers = key.substr(2);
  } else {
    return false;
  }
  while (!numbers.empty()) {
    const std::size_t slash = std::min(numbers.find('/'), numbers.size());
    const std::string_view digits = numbers.substr(0, slash);
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() ||
        (digits.size() > 1 && digits.front() == '0')) {
      return false;
    }
    into.chunk.push_back(number);
    numbers.remove_prefix(std::min(slash + 1, numbers.size()));
  }
  return true;
}

std::string join(std::string_view folder, std::string_view name) {
  return folder.empty() ? std::string(name) : std::string(folder) + '/' + std::string(name);
}

class IcechunkCatalogue : public Catalogue {
 public:
  IcechunkCatalogue(std::shared_ptr<StoreDriver> store,
                    std::string snapshot,
                    TargetRules rules,
                    StorageOptions containers)
      : store_(std::move(store)),
        snapshot_name_(std::move(snapshot)),
        snapshot_(std::make_shared<const IcechunkSnapshot>(
            get_file(*store_, "snapshots/" + snapshot_name_),
            store_->url() + ": snapshot " + snapshot_name_)),
        targets_(std::move(rules)),
        containers_(std::move(containers)) {}

  std::string url() const override {
    return std::string(kSchemeBefore) + store_->url() + std::string(kSnapshotBefore) +
           snapshot_name_;
  }
  std::string identity() const override {
    return "icechunk:" + store_->identity("") + '@' + snapshot_name_;
  }
  std::string lasting_name() const override {
    return "icechunk:" + store_->lasting_name() + '@' + snapshot_name_;
  }
  bool may_be_remote() const override { return !store_->local() || targets_.may_be_remote(); }

  std::optional<Whereabouts> find(std::string_view key) override;
  std::vector<std::string> list(std::string_view prefix) override;
  std::vector<DirEntry> list_dir(std::string_view prefix) override;

 private:
  using ManifestPtr = std::shared_ptr<const IcechunkManifest>;
  struct Kept {
    ManifestPtr manifest;
    std::list<IcechunkId>::iterator age;
  };

  ManifestPtr manifest(const IcechunkId& id) EXCLUDES(mutex_);
  Whereabouts where(const IcechunkChunk& chunk, ManifestPtr manifest, std::string_view key);
  std::string expanded(const std::string& location) const;
  void list_chunks(const IcechunkNode& node, std::vector<std::string>& keys);

  std::shared_ptr<StoreDriver> store_;
  std::string snapshot_name_;
  std::shared_ptr<const IcechunkSnapshot> snapshot_;
  Targets targets_;
  StorageOptions containers_;
  ForkMutex mutex_;
  std::map<IcechunkId, Kept> manifests_ GUARDED_BY(mutex_);
  std::list<IcechunkId> ages_ GUARDED_BY(mutex_);  // the longest unused last
  std::size_t kept_nbytes_ GUARDED_BY(mutex_) = 0;
};

IcechunkCatalogue::ManifestPtr IcechunkCatalogue::manifest(const IcechunkId& id) {
  {
    const ForkLock lock(mutex_);
    const auto at = manifests_.find(id);
    if (at != manifests_.end()) {
      ages_.splice(ages_.begin(), ages_, at->second.age);
      return at->second.manifest;
    }
  }
  const std::string name = "manifests/" + icechunk_name(id);
  auto made = std::make_shared<const IcechunkManifest>(get_file(*store_, name),
                                                       store_->url() + ": " + name);
  std::vector<ManifestPtr> dropped;  // freed after the lock
  const ForkLock lock(mutex_);
  const auto at = manifests_.find(id);
  if (at != manifests_.end()) return at->second.manifest;
  ages_.push_front(id);
  manifests_.emplace(id, Kept{made, ages_.begin()});
  kept_nbytes_ += made->nbytes();
  while (kept_nbytes_ > kKeptManifestNbytes && ages_.size() > 1) {
    const auto oldest = manifests_.find(ages_.back());
    kept_nbytes_ -= oldest->second.manifest->nbytes();
    dropped.push_back(std::move(oldest->second.manifest));
    manifests_.erase(oldest);
    ages_.pop_back();
  }
  return made;
}

std::string IcechunkCatalogue::expanded(const std::string& location) const {
  constexpr std::string_view kRelative = "vcc://";
  if (!location.starts_with(kRelative)) return location;
  const std::string_view rest = std::string_view(location).substr(kRelative.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const auto at = containers_.find(rest.substr(0, slash));
  if (at == containers_.end()) {
    throw Error(ErrorCode::unsupported,
                "a virtual chunk lies in the container \"" + std::string(rest.substr(0, slash)) +
                    "\"; the option \"virtual_containers\" says where that is");
  }
  return at->second + std::string(rest.substr(std::min(slash + 1, rest.size())));
}

Whereabouts IcechunkCatalogue::where(const IcechunkChunk& chunk,
                                     ManifestPtr manifest,
                                     std::string_view key) {
  Whereabouts where;
  if (chunk.kind != IcechunkChunk::Kind::here) {
    where.offset = chunk.offset;
    where.nbytes = chunk.nbytes;
  }
  switch (chunk.kind) {
    case IcechunkChunk::Kind::here:
      where.bytes = chunk.bytes;
      where.owner = std::move(manifest);
      return where;
    case IcechunkChunk::Kind::native:
      where.store = store_;
      where.key = "chunks/" + icechunk_name(chunk.id);
      return where;
    case IcechunkChunk::Kind::elsewhere:
      break;
  }
  const std::string location = plain_location(expanded(chunk.location));
  try {
    Target target = targets_.open(location);
    where.store = std::move(target.store);
    where.key = std::move(target.key);
  } catch (const Error& error) {
    throw error.with_context(url() + ": " + std::string(key));
  }
  if (!where.store->local()) {
    // Other stores compare versions in a way of their own.
    if (!chunk.etag.empty()) {
      const bool is_quoted = chunk.etag.starts_with('"') || chunk.etag.starts_with("W/");
      where.if_version = is_quoted ? chunk.etag : '"' + chunk.etag + '"';
    }
    where.if_unchanged_since = chunk.last_modified;
  } else if (chunk.last_modified != 0 && !is_remote_url(location)) {
    const std::string path = local_path(location);
    struct stat st;
    if (!path.empty() && os().stat(path.c_str(), &st) == 0 && st.st_mtime > chunk.last_modified) {
      throw Error(
          ErrorCode::io,
          url() + ": " + std::string(key) + " leads to " + location + ", which has changed since");
    }
  }
  return where;
}

std::optional<Whereabouts> IcechunkCatalogue::find(std::string_view key) {
  if (key == kMetadata || key.ends_with("/zarr.json")) {
    const std::string_view path =
        key == kMetadata ? std::string_view() : key.substr(0, key.size() - kMetadata.size() - 1);
    const IcechunkNode* const node = snapshot_->find(path);
    if (node == nullptr) return std::nullopt;
    Whereabouts where;
    where.bytes = node->metadata;
    where.owner = snapshot_;
    return where;
  }
  ChunkKey wanted;
  if (!split_chunk_key(key, wanted)) return std::nullopt;
  const IcechunkNode* const node = snapshot_->find(wanted.path);
  if (node == nullptr || !node->is_array || node->dimensions != wanted.chunk.size()) {
    return std::nullopt;
  }
  for (const IcechunkManifestRef& ref : node->manifests) {
    if (!ref.covers(wanted.chunk)) continue;
    ManifestPtr found = manifest(ref.id);
    if (const auto chunk = found->find(node->id, wanted.chunk)) {
      return where(*chunk, std::move(found), key);
    }
  }
  return std::nullopt;
}

void IcechunkCatalogue::list_chunks(const IcechunkNode& node, std::vector<std::string>& keys) {
  for (const IcechunkManifestRef& ref : node.manifests) {
    for (const std::vector<std::uint32_t>& chunk : manifest(ref.id)->chunks_of(node.id)) {
      if (chunk.size() != node.dimensions || !ref.covers(chunk)) continue;
      std::string key = join(node.path, "c");
      for (const std::uint32_t number : chunk) key += '/' + std::to_string(number);
      keys.push_back(std::move(key));
    }
  }
}

std::vector<std::string> IcechunkCatalogue::list(std::string_view prefix) {
  std::vector<std::string> keys;
  for (const IcechunkNode& node : snapshot_->nodes()) {
    std::vector<std::string> own{join(node.path, kMetadata)};
    const std::string chunks = join(node.path, "c");
    // The prefix leads to the node, or into its chunks.
    const bool below = prefix.empty() || node.path == prefix || lies_below(node.path, prefix);
    const bool within = prefix == chunks || lies_below(prefix, chunks);
    if (node.is_array && (below || within)) list_chunks(node, own);
    for (std::string& key : own) {
      if (lies_below(key, prefix)) keys.push_back(std::move(key));
    }
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

std::vector<DirEntry> IcechunkCatalogue::list_dir(std::string_view prefix) {
  std::vector<std::string> keys;
  for (const IcechunkNode& node : snapshot_->nodes()) {
    const std::string chunks = join(node.path, "c");
    if (prefix == chunks || lies_below(prefix, chunks)) {
      return names_directly_below(list(prefix), prefix);
    }
    // Of a node further below the name suffices; its chunks are not looked at.
    const std::string metadata = join(node.path, kMetadata);
    if (lies_below(metadata, prefix)) keys.push_back(metadata);
    if (node.path == prefix && node.is_array && !node.manifests.empty()) {
      keys.push_back(node.dimensions == 0 ? chunks : chunks + "/0");
    }
  }
  std::sort(keys.begin(), keys.end());
  return names_directly_below(keys, prefix);
}

std::string take(StorageOptions& options, std::string_view name) {
  const auto at = options.find(name);
  if (at == options.end()) return {};
  std::string value = std::move(at->second);
  options.erase(at);
  return value == "null" ? std::string() : value;
}

// "?snapshot=..." of a URL that ends so; empty for others.
std::string_view snapshot_of_url(std::string_view url) {
  const std::size_t at = url.rfind(kSnapshotBefore);
  if (at == std::string_view::npos) return {};
  const std::string_view end = url.substr(at);
  return is_icechunk_name(end.substr(kSnapshotBefore.size())) ? end : std::string_view();
}

bool exists(const std::string& path) {
  struct stat st;
  return os().stat(path.c_str(), &st) == 0;
}

}  // namespace

bool is_icechunk_scheme(std::string_view scheme) {
  return scheme == "icechunk" || scheme.starts_with("icechunk+");
}

std::string icechunk_place(std::string_view url) {
  const std::string scheme = scheme_of_url(url);
  if (scheme == "icechunk") {
    url.remove_prefix(scheme.size() + 3);
  } else if (scheme.starts_with(kSchemeBefore)) {
    url.remove_prefix(kSchemeBefore.size());
  }
  return std::string(url.substr(0, url.size() - snapshot_of_url(url).size()));
}

bool is_icechunk_repository(const std::string& path) {
  return exists(path + "/snapshots") && (exists(path + "/repo") || exists(path + "/refs")) &&
         !exists(path + "/zarr.json") && !exists(path + "/.zgroup");
}

std::shared_ptr<StoreDriver> open_icechunk_store(std::string_view url,
                                                 StoreMode mode,
                                                 const StorageOptions& options) {
  if (mode != StoreMode::read) {
    throw Error(ErrorCode::permission_denied,
                shown_place(url) +
                    ": Icechunk repositories are read only here; write through the icechunk "
                    "library's store");
  }
  // What was found by what lies there has a path, in which a "?" is one.
  const bool has_scheme = is_icechunk_scheme(scheme_of_url(url));
  const std::string place = has_scheme ? icechunk_place(url) : std::string(url);
  StorageOptions inner = options;
  Wanted wanted{take(inner, "branch"), take(inner, "tag"), take(inner, "snapshot")};
  if (const auto named = has_scheme ? snapshot_of_url(url) : ""; !named.empty()) {
    std::string snapshot(named.substr(kSnapshotBefore.size()));
    if (!wanted.snapshot.empty() && wanted.snapshot != snapshot) {
      throw Error(ErrorCode::invalid_argument,
                  shown_place(url) + ": names a snapshot, and the option \"snapshot\" another one");
    }
    wanted = {"", "", std::move(snapshot)};
  }
  TargetRules rules;
  rules.allow = parse_allow(take(inner, "allow"));
  const std::string remote = take(inner, "remote_options");
  StorageOptions containers =
      options_of_json(take(inner, "virtual_containers"), "virtual_containers");
  rules.options_are_of_home = remote.empty();
  rules.options = remote.empty() ? inner : options_of_json(remote, "remote_options");
  const std::string path = local_path(place);
  rules.home = path.empty() ? place : scheme_of_url(place).empty() ? path : percent_decode(path);
  std::shared_ptr<StoreDriver> store =
      open_plain_place(place, StoreMode::read, inner).shared_driver();
  std::string snapshot = find_snapshot(*store, std::move(wanted));
  return make_catalogue_store(
      std::make_shared<IcechunkCatalogue>(
          std::move(store), std::move(snapshot), std::move(rules), std::move(containers)),
      kNearReferences);
}

}  // namespace headrace
