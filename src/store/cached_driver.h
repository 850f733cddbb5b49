#pragma once

// A store in front of another, which keeps what was read in memory and in a folder
// (store/cached_copies.h). A source that is asked asynchronously is so through this, too
// (store/cached_reads.h), and the methods here are made of that; what is local is asked as it is.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/cached_store.h"
#include "store/cached_copies.h"
#include "store/cached_reads.h"
#include "store/flights.h"
#include "store/store.h"

namespace headrace {

// An object as a reader has it.
struct Source {
  KnownObject object;
  // Of a local store; null: opened when it is needed.
  std::shared_ptr<const ObjectReader> behind;
};

struct Block {
  std::uint64_t index = 0;
  std::string name{};
  CachedBytes bytes{};   // null: missing
  CachedBytes before{};  // what was kept of a block that is fetched once more
};

class CachedDriver final : public StoreDriver, public std::enable_shared_from_this<CachedDriver> {
 public:
  CachedDriver(std::shared_ptr<StoreDriver> store, const CacheOptions& options);

  std::string url() const override { return store_->url(); }
  bool read_only() const override { return store_->read_only(); }
  bool local() const override { return store_->local(); }
  std::optional<Coalescing> coalescing() const override { return store_->coalescing(); }
  std::size_t batch_size() const override { return store_->batch_size(); }
  AsyncReads* async_reads() override { return reads_.get(); }
  bool get(std::string_view key, Buffer& into) override {
    return get_within(key, into, UINT64_MAX);
  }
  bool get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) override;
  std::unique_ptr<ObjectReader> open(std::string_view key) override;
  void get_many(std::span<GetRequest> requests) override;
  bool exists(std::string_view key) override { return store_->exists(key); }
  void set(std::string_view key, ConstBytes bytes) override;
  void set_parts(std::string_view key, std::span<const ConstBytes> parts) override;
  WriteConditions write_conditions() const override { return store_->write_conditions(); }
  std::string set_if(std::string_view key,
                     std::span<const ConstBytes> parts,
                     const WriteCondition& condition) override;
  void erase(std::string_view key) override;
  void erase_prefix(std::string_view prefix) override;
  std::vector<std::string> list(std::string_view prefix) override { return store_->list(prefix); }
  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    return store_->list_dir(prefix);
  }
  std::vector<ObjectSize> list_sizes(std::string_view prefix) override {
    return store_->list_sizes(prefix);
  }
  void close() override { store_->close(); }
  void discard() override { store_->discard(); }
  void sync() override { store_->sync(); }
  std::string identity(std::string_view prefix) override { return store_->identity(prefix); }
  std::string lasting_name() override { return store_->lasting_name(); }
  bool get_latest(std::string_view key, Buffer& into, std::uint64_t max_nbytes) override {
    return store_->get_latest(key, into, max_nbytes);
  }
  bool get_versioned(std::string_view key,
                     Buffer& into,
                     std::uint64_t max_nbytes,
                     std::string& version) override {
    return store_->get_versioned(key, into, max_nbytes, version);
  }
  LockAttempt try_lock(std::string_view prefix, MissingFolder missing) override {
    return store_->try_lock(prefix, missing);
  }
  bool holds_only_keys() const override { return store_->holds_only_keys(); }
  bool is_link(std::string_view prefix) override { return store_->is_link(prefix); }
  std::vector<StoredName> list_names(std::string_view prefix) override {
    return store_->list_names(prefix);
  }
  void erase_names(std::span<const StoredName> names, std::string_view kept) override;

  const CacheOptions& options() const { return options_; }
  CacheStats stats() const { return copies_.stats(); }

  // For the readers.
  //
  // Ranges of an object, from blocks that are kept or fetched. `io` with ESTALE (throw_changed)
  // when the store has another object by now, which is forgotten then.
  void read(const std::string& key, Source& source, std::span<const RangeRead> reads);
  // As the store has it now; nothing when there is none.
  std::optional<Source> open_now(std::string_view key);

 private:
  template <typename Write>
  void change(std::span<const std::string> keys, Write write);
  std::uint64_t nbytes_of(const KnownObject& object, std::uint64_t block) const {
    return std::min(block_nbytes_, object.size - block * block_nbytes_);
  }
  std::string name_of(std::string_view key, const KnownObject& object, std::uint64_t block) const {
    return copies_.name_of(key, object, block * block_nbytes_, nbytes_of(object, block));
  }

  CachedBytes find(const std::string& name, std::uint64_t nbytes);
  std::vector<Block> wanted_blocks(std::string_view key,
                                   const KnownObject& object,
                                   std::span<const RangeRead> reads);
  void fetch(const std::string& key, Source& source, std::span<Block* const> blocks);
  void read_by_blocks(const std::string& key, Source& source, std::span<const RangeRead> reads);
  void read_and_wait_for(const std::string& key,
                         const KnownObject& object,
                         std::span<const RangeRead> reads);

  bool serve_whole(GetRequest& request);
  void fetch_whole(GetRequest& request);
  void fetch_whole_local(GetRequest& request);
  void keep_whole(std::string_view key, ConstBytes bytes, std::uint64_t version, long writes);

  const std::shared_ptr<StoreDriver> store_;
  const CacheOptions options_;
  const std::uint64_t block_nbytes_;
  CachedCopies copies_;
  Flights flights_;
  std::unique_ptr<CachedReads> reads_;  // null: the store answers at once
};

std::unique_ptr<ObjectReader> make_cached_reader(std::shared_ptr<CachedDriver> driver,
                                                 std::string key,
                                                 Source source);

}  // namespace headrace
