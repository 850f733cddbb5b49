#pragma once

// A store in front of another, which keeps what was read in memory and in a folder.
//
// What is known of an object is its size, its version in the store behind, and a number that it was
// given when it was seen first. Its blocks are kept by that number, and a number is of one version:
// once an object is written, or seen to have changed, another number is made, and the blocks of the
// old one are nobody's and go in time. So blocks of two versions never meet.
//
// Of a store that cannot tell versions (version 0) a number is of what had that size. What is
// asked for at once is then all kept or all fetched, and what is fetched once more tells by its
// bytes whether the object is still the same.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork_mutex.h"
#include "base/key_locks.h"
#include "headrace/cached_store.h"
#include "store/cache_disk.h"
#include "store/cache_memory.h"
#include "store/flights.h"
#include "store/store.h"

namespace headrace {

// To read an object that is written all the time.
inline constexpr int kReadAttempts = 4;

struct KnownObject {
  std::uint64_t size = 0, version = 0;
  std::uint64_t number = 0;  // 0: seen while it was written; nothing of it is kept
};

// An object as a reader has it.
struct Source {
  KnownObject object;
  std::shared_ptr<const ObjectReader> behind;  // null: opened when it is needed
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
  bool get(std::string_view key, Buffer& into) override {
    return get_within(key, into, UINT64_MAX);
  }
  bool get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) override;
  std::unique_ptr<ObjectReader> open(std::string_view key) override;
  void get_many(std::span<GetRequest> requests) override;
  bool exists(std::string_view key) override { return store_->exists(key); }
  void set(std::string_view key, ConstBytes bytes) override;
  void set_parts(std::string_view key, std::span<const ConstBytes> parts) override;
  void erase(std::string_view key) override;
  void erase_prefix(std::string_view prefix) override;
  std::vector<std::string> list(std::string_view prefix) override { return store_->list(prefix); }
  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    return store_->list_dir(prefix);
  }
  void close() override { store_->close(); }
  void discard() override { store_->discard(); }
  void sync() override { store_->sync(); }
  std::string identity(std::string_view prefix) override { return store_->identity(prefix); }
  bool get_latest(std::string_view key, Buffer& into, std::uint64_t max_nbytes) override {
    return store_->get_latest(key, into, max_nbytes);
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
  CacheStats stats() const;

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
  std::string name_of(std::string_view key) const;
  std::uint64_t nbytes_of(const KnownObject& object, std::uint64_t block) const {
    return std::min(block_nbytes_, object.size - block * block_nbytes_);
  }
  std::string name_of(std::string_view key, const KnownObject& object, std::uint64_t block) const;

  CachedBytes find(const std::string& name, std::uint64_t nbytes);
  void keep(const std::string& name, CachedBytes bytes);
  std::vector<Block> wanted_blocks(std::string_view key,
                                   const KnownObject& object,
                                   std::span<const RangeRead> reads);
  void fetch(const std::string& key, Source& source, std::span<Block* const> blocks);

  std::optional<KnownObject> find_object(std::string_view key);
  // `writes`: their number before the object was looked at. `fresh`: never by a number that is
  // known where versions cannot be told.
  KnownObject remember(
      std::string_view key, std::uint64_t size, std::uint64_t version, long writes, bool fresh);
  void forget(std::string_view key, const KnownObject& object);
  void begin_write(std::string_view key);
  void end_write(std::string_view key);
  bool is_written(const std::string& name);

  bool serve_whole(GetRequest& request);
  void fetch_whole(GetRequest& request);
  void fetch_whole_local(GetRequest& request);
  void keep_whole(std::string_view key, ConstBytes bytes, std::uint64_t version, long writes);

  const std::shared_ptr<StoreDriver> store_;
  const CacheOptions options_;
  const std::uint64_t block_nbytes_;
  MemoryCache memory_;
  std::unique_ptr<DiskCache> disk_;  // null: none; not changed later
  Flights flights_;
  // An object is looked up in the folder, remembered and forgotten under its lock; `writes_` says
  // who is about to remember it whether it was forgotten since it was looked at.
  KeyLocks locks_;
  std::atomic<long> writes_{0};
  ForkMutex written_mutex_;
  std::map<std::string, int> written_ GUARDED_BY(written_mutex_);  // by how many writes right now
  std::atomic<std::int64_t> memory_hits_{0}, disk_hits_{0}, misses_{0}, fetched_nbytes_{0};
};

std::unique_ptr<ObjectReader> make_cached_reader(std::shared_ptr<CachedDriver> driver,
                                                 std::string key,
                                                 Source source);

}  // namespace headrace
