#pragma once

// What a repository has at one time: its nodes, and the manifests that name their chunks.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "store/icechunk/flat_table.h"
#include "store/icechunk/metadata_file.h"

namespace headrace {

// Which chunks of an array a manifest names: [from, to) of each dimension.
struct IcechunkExtent {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

struct IcechunkManifestRef {
  IcechunkId id{};
  std::vector<IcechunkExtent> extents{};
  bool covers(std::span<const std::uint32_t> chunk) const;
};

struct IcechunkNode {
  std::string path;  // "a/b", "" for the root
  IcechunkNodeId id{};
  ConstBytes metadata{};  // zarr.json
  bool is_array = false;
  std::size_t dimensions = 0;
  std::vector<IcechunkManifestRef> manifests{};
};

class IcechunkSnapshot {
 public:
  // `name` for messages.
  IcechunkSnapshot(ConstBytes file, const std::string& name);

  const std::vector<IcechunkNode>& nodes() const { return nodes_; }  // sorted by path
  const IcechunkNode* find(std::string_view path) const;

 private:
  Buffer bytes_;
  std::vector<IcechunkNode> nodes_;
};

// Where a chunk is. Views into the manifest.
struct IcechunkChunk {
  enum class Kind : std::uint8_t { here, native, elsewhere };
  Kind kind = Kind::here;
  ConstBytes bytes{};      // here
  IcechunkId id{};         // native
  std::string location{};  // elsewhere
  std::string etag{};
  std::uint32_t last_modified = 0;  // seconds since 1970; 0: not known
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;
};

// The chunks stay in the flatbuffer, in which they are sorted, and are looked up there.
class IcechunkManifest {
 public:
  IcechunkManifest(ConstBytes file, const std::string& name);

  std::size_t nbytes() const { return bytes_.size(); }
  std::optional<IcechunkChunk> find(const IcechunkNodeId& node,
                                    std::span<const std::uint32_t> chunk) const;
  // The numbers of all chunks of an array.
  std::vector<std::vector<std::uint32_t>> chunks_of(const IcechunkNodeId& node) const;

 private:
  struct Array {
    IcechunkNodeId node{};
    FlatVector chunks{};
  };
  const Array* array_of(const IcechunkNodeId& node) const;
  IcechunkChunk chunk_of(const FlatTable& table) const;
  std::string unpack_location(ConstBytes packed) const;

  std::string name_;
  Buffer bytes_;
  std::vector<Array> arrays_;  // sorted
  ConstBytes dictionary_{};
};

}  // namespace headrace
