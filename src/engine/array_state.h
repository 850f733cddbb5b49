#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fork_mutex.h"
#include "codec/chain.h"
#include "codec/shard_index.h"
#include "engine/device_plan.h"
#include "engine/encode_plan.h"
#include "engine/index_cache.h"
#include "format/metadata.h"
#include "headrace/array.h"
#include "store/store.h"

namespace headrace {

// One level of sharding: the shape and codecs of its inner chunks' index.
struct ShardLevel {
  Shape shard_shape;
  Shape inner_shape;
  Shape inner_grid;  // inner chunks along each dimension of a shard
  std::int64_t inner_count = 0;
  CodecChain index_chain;
  std::size_t index_nbytes = 0;
  bool index_at_end = true;
};

class RegionLayouts;  // engine/regions.h

// What metadata mean for reading and writing, worked out once. Immutable. Of a rectilinear grid,
// for objects of one shape: that of an array for the largest, which tells what its codecs can do.
struct ArrayLayout {
  std::shared_ptr<const ArrayMetadata> metadata;
  // Outermost first. Empty without sharding, and where sharding stands among other codecs: then the
  // stored object is one chunk and the codec chain holds the sharding codec.
  std::vector<ShardLevel> shards;
  Shape chunk_shape;            // of the unit that is decoded: the innermost chunk
  CodecChain chain;             // of that unit
  std::vector<std::byte> fill;  // one element; of variable length, it points into the metadata
  DevicePlan device_plan;       // of the chain
  EncodePlan encode_plan;
  // Codecs of the chain that were asked to be decoded on a type of device: "headrace-cuda", ...
  Implementations on_device;

  std::shared_ptr<RegionLayouts> regions;  // of an array with a rectilinear grid, else null

  const Shape& stored_shape() const {
    return shards.empty() ? chunk_shape : shards.front().shard_shape;
  }
  std::size_t itemsize() const { return metadata->dtype.itemsize(); }
  bool variable_length() const { return metadata->dtype.variable_length(); }
};

// invalid_argument when a read to this type of device, or a write from it, goes against the
// layout's on_device.
void check_on_device(const ArrayLayout& layout, Device::Type type);

ArrayLayout make_layout(std::shared_ptr<const ArrayMetadata> metadata,
                        const Implementations& implementations);
// For objects of one shape; without `regions`.
ArrayLayout make_layout(std::shared_ptr<const ArrayMetadata> metadata,
                        const Implementations& implementations,
                        const Shape& stored_shape);

// What all handles of one array share.
struct ArrayShared {
  ArrayShared(Store s, std::string p, ArrayMetadata m, bool from_store = true)
      : store(std::move(s)),
        path(std::move(p)),
        has_document(from_store),
        metadata(std::make_shared<const ArrayMetadata>(std::move(m))) {}

  const Store store;
  const std::string path;  // "a/b", "" for the root
  // False: the caller gave the metadata, and the store may have none.
  const bool has_document;
  std::atomic<bool> has_folder{false};  // only asked where there is no document
  ForkMutex mutex;
  std::shared_ptr<const ArrayMetadata> metadata GUARDED_BY(mutex);  // replaced whole
  IndexCache index_cache;
};

// Behind a handle: what is shared, and what this handle alone has chosen.
class ArrayState {
 public:
  struct Choice {
    Device device;
    bool read_only = false;
    bool write_empty_chunks = false;
    ShardOrder shard_order = ShardOrder::lexicographic;
    Implementations implementations;
  };

  ArrayState(std::shared_ptr<ArrayShared> shared, Choice choice)
      : shared_(std::move(shared)), choice_(std::move(choice)) {}

  const Choice& choice() const { return choice_; }
  const std::shared_ptr<ArrayShared>& shared() const { return shared_; }
  StoreDriver& driver() const { return shared_->store.driver(); }
  const std::string& path() const { return shared_->path; }

  std::shared_ptr<const ArrayMetadata> metadata() const;
  // `unsupported` here, not at open, for codecs this build lacks: such an array can be looked at.
  std::shared_ptr<const ArrayLayout> layout(const Implementations& extra = {}) const;
  // The same of metadata that are not those of the handles yet.
  std::shared_ptr<const ArrayLayout> layout_of(std::shared_ptr<const ArrayMetadata> metadata,
                                               const Implementations& extra = {}) const;
  // To all handles; the store has them already (engine/metadata_change.h).
  void show_metadata(std::shared_ptr<const ArrayMetadata> metadata) const;
  // permission_denied when this handle or the store may not be written.
  void check_writable() const;

 private:
  std::shared_ptr<ArrayShared> shared_;
  Choice choice_;
  mutable ForkMutex mutex_;
  mutable std::shared_ptr<const ArrayLayout> layout_ GUARDED_BY(mutex_);  // the last one asked for
  mutable Implementations layout_implementations_ GUARDED_BY(mutex_);
};

// "a/b" + "c/0/1" -> "a/b/c/0/1"; "" + key -> key.
std::string join_key(std::string_view path, std::string_view key);

// Writes the metadata documents of an array (zarr.json, or .zarray and .zattrs).
void store_array_metadata(const Store& store,
                          const std::string& path,
                          const ArrayMetadata& metadata);

}  // namespace headrace
