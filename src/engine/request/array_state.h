#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fork_mutex.h"
#include "engine/layout/array_layout.h"
#include "engine/request/index_cache.h"
#include "format/metadata.h"
#include "headrace/array.h"
#include "store/store.h"

namespace headrace {

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
  // Of files: throws `not_found` when the array has been removed. Null elsewhere.
  void (*check_is_there)(const ArrayShared&, int zarr_format) = nullptr;
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
  // In messages: the path, for the root the store's URL.
  std::string name() const;

  std::shared_ptr<const ArrayMetadata> metadata() const;
  // `unsupported` here, not at open, for codecs this build lacks: such an array can be looked at.
  std::shared_ptr<const ArrayLayout> layout(const Implementations& extra = {}) const;
  // The same of metadata that are not those of the handles yet.
  std::shared_ptr<const ArrayLayout> layout_of(std::shared_ptr<const ArrayMetadata> metadata,
                                               const Implementations& extra = {}) const;
  // To all handles; the store has them already (engine/node/metadata_change.h).
  void show_metadata(std::shared_ptr<const ArrayMetadata> metadata) const;
  // Whether a write keeps what an object has behind the edge of the array, which others may have
  // grown since. Who gives the metadata (zarr-python) changes the shape, and forgets it.
  bool keeps_behind_edge() const { return shared_->has_document; }
  // permission_denied when this handle or the store may not be written.
  void check_writable() const;
  // invalid_argument for elements of a caller's that are nowhere. `action`: "read".
  void check_memory(const char* action, const TensorView& view) const;

 private:
  std::shared_ptr<ArrayShared> shared_;
  Choice choice_;
  mutable ForkMutex mutex_;
  mutable std::shared_ptr<const ArrayLayout> layout_ GUARDED_BY(mutex_);  // the last one asked for
  mutable Implementations layout_implementations_ GUARDED_BY(mutex_);
};

}  // namespace headrace
