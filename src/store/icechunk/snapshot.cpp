#include "store/icechunk/snapshot.h"

#include <zstd.h>

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "headrace/error.h"
#include "store/store.h"

namespace headrace {
namespace {

// Numbers of fields, by the order in the format's schemas; a union has two.
namespace snapshot_field {
constexpr unsigned kNodes = 2;
}
namespace node_field {
constexpr unsigned kId = 0, kPath = 1, kUserData = 2, kKind = 3, kData = 4;
constexpr std::uint8_t kArray = 1, kGroup = 2;  // of kKind
}  // namespace node_field
namespace array_field {
constexpr unsigned kShape = 0, kManifests = 2, kShapeV2 = 3;
constexpr std::size_t kShapeNbytes = 16;
}  // namespace array_field
namespace manifest_ref_field {
constexpr unsigned kId = 0, kExtents = 1;
}
namespace manifest_field {
constexpr unsigned kArrays = 1, kDictionary = 2, kCompression = 3;
constexpr std::uint8_t kZstd = 1;
}  // namespace manifest_field
namespace array_manifest_field {
constexpr unsigned kNode = 0, kChunks = 1;
}
namespace chunk_field {
constexpr unsigned kIndex = 0, kInline = 1, kOffset = 2, kLength = 3, kId = 4, kLocation = 5;
constexpr unsigned kEtag = 6, kLastModified = 7, kPackedLocation = 8;
}  // namespace chunk_field

constexpr std::size_t kMaxLocation = 1024;  // what writers pack

[[noreturn]] void fail(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::corrupt, name + ": " + why);
}

IcechunkNodeId node_id(ConstBytes bytes) {
  IcechunkNodeId id;
  std::copy_n(bytes.begin(), id.size(), id.begin());
  return id;
}

std::vector<std::uint32_t> index_of(const FlatTable& chunk) {
  const FlatVector numbers = chunk.vector(chunk_field::kIndex, 4);
  if (numbers.size() > kMaxDimensions) {
    throw Error(ErrorCode::corrupt, "a chunk of " + std::to_string(numbers.size()) + " dimensions");
  }
  std::vector<std::uint32_t> index(numbers.size());
  for (std::size_t i = 0; i < index.size(); ++i) {
    index[i] = load_le<std::uint32_t>(numbers.element(i).data());
  }
  return index;
}

// Less, equal or greater by the sign.
int compare_index(const FlatTable& chunk, std::span<const std::uint32_t> wanted) {
  const FlatVector numbers = chunk.vector(chunk_field::kIndex, 4);
  const std::size_t n = std::min(numbers.size(), wanted.size());
  for (std::size_t i = 0; i < n; ++i) {
    const auto number = load_le<std::uint32_t>(numbers.element(i).data());
    if (number != wanted[i]) return number < wanted[i] ? -1 : 1;
  }
  if (numbers.size() == wanted.size()) return 0;
  return numbers.size() < wanted.size() ? -1 : 1;
}

// What tables of a file may hold together where many lead to one, so that a small file is not a
// large snapshot: no more than the file would have if each were there by itself.
class Room {
 public:
  Room(std::size_t nbytes, const std::string& name) : left_(nbytes), name_(name) {}

  void take(std::size_t nbytes) {
    if (nbytes > left_) fail(name_, "its nodes share their paths or manifests");
    left_ -= nbytes;
  }

 private:
  std::size_t left_;
  const std::string& name_;
};

IcechunkManifestRef read_manifest_ref(const FlatTable& table, Room& room) {
  IcechunkManifestRef ref;
  ref.id = icechunk_id(table.structure(manifest_ref_field::kId, sizeof(IcechunkId)));
  const FlatVector extents = table.vector(manifest_ref_field::kExtents, 8);
  if (extents.size() > kMaxDimensions) {
    throw Error(ErrorCode::corrupt, "a manifest of more dimensions than an array may have");
  }
  room.take(sizeof(IcechunkId) + extents.bytes().size());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const ConstBytes extent = extents.element(i);
    ref.extents.push_back(
        {load_le<std::uint32_t>(extent.data()), load_le<std::uint32_t>(extent.data() + 4)});
  }
  return ref;
}

IcechunkNode read_node(const FlatTable& table, const std::string& name, Room& room) {
  IcechunkNode node;
  node.id = node_id(table.structure(node_field::kId, sizeof(IcechunkNodeId)));
  const std::string_view path = table.string(node_field::kPath);
  if (!path.starts_with('/')) fail(name, "a node's path does not begin with a slash");
  room.take(path.size());
  node.path = path.substr(1);
  if (const char* fault = node.path.empty() ? nullptr : key_fault(node.path)) {
    fail(name, "the path " + node.path + " " + fault);
  }
  node.metadata = table.bytes(node_field::kUserData);
  const std::uint8_t kind = table.u8(node_field::kKind, 0);
  if (kind != node_field::kArray && kind != node_field::kGroup) {
    fail(name, "node " + node.path + " is neither an array nor a group");
  }
  node.is_array = kind == node_field::kArray;
  if (!node.is_array) return node;
  const FlatTable array = table.table(node_field::kData);
  node.dimensions = array.has(array_field::kShapeV2)
                        ? array.vector(array_field::kShapeV2, 4).size()
                        : array.vector(array_field::kShape, array_field::kShapeNbytes).size();
  if (node.dimensions > kMaxDimensions)
    fail(name, "node " + node.path + " has too many dimensions");
  const FlatVector manifests = array.vector(array_field::kManifests, 4);
  for (std::size_t i = 0; i < manifests.size(); ++i) {
    node.manifests.push_back(read_manifest_ref(manifests.table(i), room));
  }
  return node;
}

}  // namespace

bool IcechunkManifestRef::covers(std::span<const std::uint32_t> chunk) const {
  const std::size_t n = std::min(extents.size(), chunk.size());
  for (std::size_t i = 0; i < n; ++i) {
    if (chunk[i] < extents[i].from || chunk[i] >= extents[i].to) return false;
  }
  return true;
}

IcechunkSnapshot::IcechunkSnapshot(ConstBytes file, const std::string& name)
    : bytes_(unpack_icechunk_file(file, IcechunkFile::snapshot, name)) {
  const FlatVector nodes = FlatTable::root(bytes_).vector(snapshot_field::kNodes, 4);
  if (nodes.size() > kMaxMembers) fail(name, "more nodes than a group may have members");
  Room room(bytes_.size(), name);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes_.push_back(read_node(nodes.table(i), name, room));
  }
  std::sort(nodes_.begin(), nodes_.end(), [](const IcechunkNode& a, const IcechunkNode& b) {
    return a.path < b.path;
  });
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    if (nodes_[i].path == nodes_[i - 1].path) fail(name, "two nodes at " + nodes_[i].path);
  }
}

const IcechunkNode* IcechunkSnapshot::find(std::string_view path) const {
  const auto at = std::lower_bound(
      nodes_.begin(), nodes_.end(), path, [](const IcechunkNode& node, std::string_view wanted) {
        return node.path < wanted;
      });
  return at == nodes_.end() || at->path != path ? nullptr : &*at;
}

IcechunkManifest::IcechunkManifest(ConstBytes file, const std::string& name)
    : name_(name), bytes_(unpack_icechunk_file(file, IcechunkFile::manifest, name)) {
  const FlatTable root = FlatTable::root(bytes_);
  if (root.u8(manifest_field::kCompression, manifest_field::kZstd) == manifest_field::kZstd) {
    dictionary_ = root.bytes(manifest_field::kDictionary);
  }
  const FlatVector arrays = root.vector(manifest_field::kArrays, 4);
  // Each has 4 bytes in the vector, which zstd makes of next to nothing.
  if (arrays.size() > kMaxMembers) fail(name, "more arrays than a group may have members");
  std::size_t chunks = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const FlatTable table = arrays.table(i);
    Array array;
    array.node = node_id(table.structure(array_manifest_field::kNode, sizeof(IcechunkNodeId)));
    array.chunks = table.vector(array_manifest_field::kChunks, 4);
    chunks += array.chunks.size();
    if (chunks > bytes_.size() / 4) fail(name, "arrays that share their chunks");
    // Looked up by halves: in any other order some would not be found, and read as missing.
    std::vector<std::uint32_t> before;
    for (std::size_t k = 0; k < array.chunks.size(); ++k) {
      const FlatTable chunk = array.chunks.table(k);
      if (k > 0 && compare_index(chunk, before) <= 0) fail(name, "chunks are not in order");
      before = index_of(chunk);
    }
    arrays_.push_back(array);
  }
  std::stable_sort(arrays_.begin(), arrays_.end(), [](const Array& a, const Array& b) {
    return a.node < b.node;
  });
}

const IcechunkManifest::Array* IcechunkManifest::array_of(const IcechunkNodeId& node) const {
  const auto at = std::lower_bound(
      arrays_.begin(), arrays_.end(), node, [](const Array& array, const IcechunkNodeId& wanted) {
        return array.node < wanted;
      });
  return at == arrays_.end() || at->node != node ? nullptr : &*at;
}

std::optional<IcechunkChunk> IcechunkManifest::find(const IcechunkNodeId& node,
                                                    std::span<const std::uint32_t> chunk) const {
  const Array* const array = array_of(node);
  if (array == nullptr) return std::nullopt;
  std::size_t low = 0;
  std::size_t high = array->chunks.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    const FlatTable table = array->chunks.table(middle);
    const int order = compare_index(table, chunk);
    if (order == 0) return chunk_of(table);
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return std::nullopt;
}

std::vector<std::vector<std::uint32_t>> IcechunkManifest::chunks_of(
    const IcechunkNodeId& node) const {
  std::vector<std::vector<std::uint32_t>> all;
  if (const Array* const array = array_of(node)) {
    for (std::size_t i = 0; i < array->chunks.size(); ++i) {
      all.push_back(index_of(array->chunks.table(i)));
    }
  }
  return all;
}

IcechunkChunk IcechunkManifest::chunk_of(const FlatTable& table) const {
  IcechunkChunk chunk;
  chunk.offset = table.u64(chunk_field::kOffset, 0);
  chunk.nbytes = table.u64(chunk_field::kLength, 0);
  if (chunk.offset > UINT64_MAX / 2 || chunk.nbytes > UINT64_MAX / 2) {
    fail(name_, "a chunk past 2^63");
  }
  if (table.has(chunk_field::kId)) {
    chunk.kind = IcechunkChunk::Kind::native;
    chunk.id = icechunk_id(table.structure(chunk_field::kId, sizeof(IcechunkId)));
    return chunk;
  }
  const bool is_packed = table.has(chunk_field::kPackedLocation);
  if (is_packed || table.has(chunk_field::kLocation)) {
    chunk.kind = IcechunkChunk::Kind::elsewhere;
    chunk.location = is_packed ? unpack_location(table.bytes(chunk_field::kPackedLocation))
                               : std::string(table.string(chunk_field::kLocation));
    chunk.etag = table.string(chunk_field::kEtag);
    chunk.last_modified = table.u32(chunk_field::kLastModified, 0);
    return chunk;
  }
  if (!table.has(chunk_field::kInline)) fail(name_, "a chunk that is nowhere");
  chunk.bytes = table.bytes(chunk_field::kInline);
  return chunk;
}

std::string IcechunkManifest::unpack_location(ConstBytes packed) const {
  if (dictionary_.empty()) fail(name_, "a packed location, and no dictionary for it");
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                        ZSTD_freeDCtx);
  if (!context) throw Error(ErrorCode::out_of_memory, "zstd");
  std::string location(kMaxLocation, '\0');
  const std::size_t n = ZSTD_decompress_usingDict(context.get(),
                                                  location.data(),
                                                  location.size(),
                                                  packed.data(),
                                                  packed.size(),
                                                  dictionary_.data(),
                                                  dictionary_.size());
  if (ZSTD_isError(n)) fail(name_, std::string("a packed location: ") + ZSTD_getErrorName(n));
  location.resize(n);
  return location;
}

}  // namespace headrace
