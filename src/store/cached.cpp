// A store in front of another, which keeps what was read in memory and in a folder.
//
// What is known of an object is its size and a number that it was given when it was seen first. Its
// blocks are kept by that number: once an object is written, and so forgotten, they are nobody's,
// and go in time.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/key_locks.h"
#include "headrace/cached_store.h"
#include "headrace/error.h"
#include "store/cache_disk.h"
#include "store/cache_memory.h"
#include "store/store.h"

namespace headrace {
namespace {

struct KnownObject {
  std::uint64_t size, number;
};

class CachedDriver final : public StoreDriver {
 public:
  CachedDriver(std::shared_ptr<StoreDriver> store, const CacheOptions& options);

  std::string url() const override { return store_->url(); }
  bool read_only() const override { return store_->read_only(); }
  bool local() const override { return store_->local(); }
  std::size_t batch_size() const override { return store_->batch_size(); }
  bool get(std::string_view key, Buffer& into) override;
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
  std::string identity(std::string_view prefix) override { return store_->identity(prefix); }
  bool get_latest(std::string_view key, Buffer& into) override {
    return store_->get_latest(key, into);
  }
  LockAttempt try_lock(std::string_view prefix, bool make) override {
    return store_->try_lock(prefix, make);
  }
  bool holds_only_keys() const override { return store_->holds_only_keys(); }
  bool is_link(std::string_view prefix) override { return store_->is_link(prefix); }
  std::vector<StoredName> list_names(std::string_view prefix) override {
    return store_->list_names(prefix);
  }
  void erase_names(std::span<const StoredName> names, std::string_view kept) override;
  void discard() override { store_->discard(); }
  void sync() override { store_->sync(); }

  const CacheOptions& options() const { return options_; }
  CacheStats stats() const;

  // For the readers.
  //
  // Bytes of an object, from blocks that are kept or from `fetch(offset, dst)`.
  template <typename Fetch>
  void read(const std::string& key,
            const KnownObject& object,
            std::uint64_t offset,
            MutableBytes dst,
            Fetch fetch);
  std::unique_ptr<ObjectReader> open_behind(const std::string& key, const KnownObject& object);

 private:
  template <typename Write>
  void change(std::span<const std::string> keys, Write write);
  std::string name_of(std::string_view key) const;
  std::string name_of(std::string_view key, const KnownObject& object, std::uint64_t block) const;
  CachedBytes find(const std::string& name);
  void keep(const std::string& name, CachedBytes bytes);
  std::optional<KnownObject> find_object(std::string_view key);
  // `writes`: their number before the object was looked at.
  KnownObject remember(std::string_view key, std::uint64_t size, long writes);
  void forget(std::string_view key);
  bool serve_whole(std::string_view key, Buffer& into);
  void keep_whole(std::string_view key, ConstBytes bytes, long writes);
  void keep_blocks(std::string_view key,
                   const KnownObject& object,
                   std::uint64_t first_block,
                   ConstBytes bytes);

  const std::shared_ptr<StoreDriver> store_;
  const CacheOptions options_;
  const std::uint64_t block_nbytes_;
  MemoryCache memory_;
  const std::unique_ptr<DiskCache> disk_;  // null: none
  // An object is looked up in the folder, remembered and forgotten under its lock; `writes_` says
  // who is about to remember it whether it was forgotten since it was looked at.
  KeyLocks locks_;
  std::atomic<long> writes_{0};
  std::atomic<std::int64_t> memory_hits_{0}, disk_hits_{0}, misses_{0}, fetched_nbytes_{0};
};

class CachedReader final : public ObjectReader {
 public:
  CachedReader(CachedDriver& driver,
               std::string key,
               const KnownObject& object,
               std::unique_ptr<ObjectReader> behind)
      : driver_(driver), key_(std::move(key)), object_(object), behind_(std::move(behind)) {}

  std::uint64_t size() const override { return object_.size; }
  std::uint64_t version() const override { return object_.number; }
  void read(std::uint64_t offset, MutableBytes dst) const override {
    check_object_range(key_, object_.size, offset, dst.size());
    driver_.read(key_, object_, offset, dst, [&](std::uint64_t at, MutableBytes bytes) {
      if (behind_) return behind_->read(at, bytes);
      driver_.open_behind(key_, object_)->read(at, bytes);
    });
  }

 private:
  CachedDriver& driver_;
  const std::string key_;
  const KnownObject object_;
  const std::unique_ptr<ObjectReader> behind_;  // null: opened when it is needed
};

// No reader's version is 0.
std::uint64_t new_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random() | 1;
}

CachedDriver::CachedDriver(std::shared_ptr<StoreDriver> store, const CacheOptions& options)
    : store_(std::move(store)),
      options_(options),
      block_nbytes_(options.block_nbytes),
      memory_(options.memory_nbytes),
      disk_(options.directory.empty()
                ? nullptr
                : std::make_unique<DiskCache>(options.directory, options.disk_nbytes)) {
  if (block_nbytes_ == 0)
    throw Error(ErrorCode::invalid_argument, "[cached_store] blocks of 0 bytes");
}

std::string CachedDriver::name_of(std::string_view key) const {
  return (options_.name.empty() ? url() : options_.name) + '\n' + std::string(key);
}

std::string CachedDriver::name_of(std::string_view key,
                                  const KnownObject& object,
                                  std::uint64_t block) const {
  return name_of(key) + '\n' + std::to_string(object.number) + '\n' +
         std::to_string(block * block_nbytes_) + '+' + std::to_string(block_nbytes_);
}

// Null: neither in memory nor on disk.
CachedBytes CachedDriver::find(const std::string& name) {
  if (CachedBytes bytes = memory_.find(name)) {
    ++memory_hits_;
    return bytes;
  }
  CachedBytes bytes = disk_ ? disk_->find(name) : nullptr;
  if (bytes) {
    ++disk_hits_;
    memory_.put(name, bytes);
  }
  return bytes;
}

void CachedDriver::keep(const std::string& name, CachedBytes bytes) {
  if (disk_) disk_->put(name, *bytes);
  memory_.put(name, std::move(bytes));
}

void CachedDriver::forget(std::string_view key) {
  const std::string name = name_of(key);
  const auto lock = locks_.lock(name);
  ++writes_;
  memory_.erase(name);
  if (disk_) disk_->erase(name);
}

std::optional<KnownObject> CachedDriver::find_object(std::string_view key) {
  const std::string name = name_of(key);
  CachedBytes known = memory_.find(name);
  if (!known && disk_) {
    const auto lock = locks_.lock(name);
    known = disk_->find(name);
    if (known) memory_.put(name, known);
  }
  if (!known || known->size() != 2 * sizeof(std::uint64_t)) return std::nullopt;
  return KnownObject{load_le<std::uint64_t>(known->data()),
                     load_le<std::uint64_t>(known->data() + sizeof(std::uint64_t))};
}

KnownObject CachedDriver::remember(std::string_view key, std::uint64_t size, long writes) {
  const KnownObject object{size, new_number()};
  auto bytes = std::make_shared<Buffer>(2 * sizeof(std::uint64_t));
  store_le(bytes->data(), object.size);
  store_le(bytes->data() + sizeof(std::uint64_t), object.number);
  const std::string name = name_of(key);
  const auto lock = locks_.lock(name);
  if (writes == writes_) keep(name, std::move(bytes));
  return object;
}

bool CachedDriver::serve_whole(std::string_view key, Buffer& into) {
  const std::optional<KnownObject> object = find_object(key);
  if (!object) return false;
  into.resize(object->size);
  for (std::uint64_t at = 0; at < object->size; at += block_nbytes_) {
    const CachedBytes block = find(name_of(key, *object, at / block_nbytes_));
    if (!block || block->size() != std::min(block_nbytes_, object->size - at)) return false;
    std::memcpy(into.data() + at, block->data(), block->size());
  }
  return true;
}

void CachedDriver::keep_whole(std::string_view key, ConstBytes bytes, long writes) {
  misses_ += static_cast<std::int64_t>((bytes.size() + block_nbytes_ - 1) / block_nbytes_);
  fetched_nbytes_ += static_cast<std::int64_t>(bytes.size());
  const std::optional<KnownObject> known = find_object(key);
  if (writes != writes_) return;
  const bool is_same = known && known->size == bytes.size();
  keep_blocks(key, is_same ? *known : remember(key, bytes.size(), writes), 0, bytes);
}

void CachedDriver::keep_blocks(std::string_view key,
                               const KnownObject& object,
                               std::uint64_t first_block,
                               ConstBytes bytes) {
  for (std::uint64_t block = first_block; !bytes.empty(); ++block) {
    const std::size_t nbytes = std::min<std::uint64_t>(block_nbytes_, bytes.size());
    auto copy = std::make_shared<Buffer>();
    copy->assign(bytes.first(nbytes));
    keep(name_of(key, object, block), std::move(copy));
    bytes = bytes.subspan(nbytes);
  }
}

bool CachedDriver::get(std::string_view key, Buffer& into) {
  if (serve_whole(key, into)) return true;
  const long writes = writes_;
  if (!store_->get(key, into)) return false;
  keep_whole(key, into, writes);
  return true;
}

void CachedDriver::get_many(std::span<GetRequest> requests) {
  std::vector<GetRequest> missing;
  std::vector<GetRequest*> asked;
  for (GetRequest& request : requests) {
    request.found = serve_whole(request.key, *request.into);
    if (request.found) continue;
    missing.push_back({request.key, request.into});
    asked.push_back(&request);
  }
  if (missing.empty()) return;
  const long writes = writes_;
  store_->get_many(missing);
  for (std::size_t i = 0; i < missing.size(); ++i) {
    asked[i]->found = missing[i].found;
    asked[i]->error = missing[i].error;
    if (missing[i].found) keep_whole(missing[i].key, *missing[i].into, writes);
  }
}

std::unique_ptr<ObjectReader> CachedDriver::open(std::string_view key) {
  if (const auto object = find_object(key))
    return std::make_unique<CachedReader>(*this, std::string(key), *object, nullptr);
  const long writes = writes_;
  std::unique_ptr<ObjectReader> behind = store_->open(key);
  if (!behind) return nullptr;
  const KnownObject object = remember(key, behind->size(), writes);
  return std::make_unique<CachedReader>(*this, std::string(key), object, std::move(behind));
}

// What is known of an object may be older than what the store has.
std::unique_ptr<ObjectReader> CachedDriver::open_behind(const std::string& key,
                                                        const KnownObject& object) {
  std::unique_ptr<ObjectReader> behind = store_->open(key);
  const auto known = find_object(key);
  const bool is_replaced = known && known->number != object.number;
  if (behind && behind->size() == object.size && !is_replaced) return behind;
  forget(key);
  throw Error(ErrorCode::io,
              "[cached_store] " + url() + ": " + key +
                  " has changed in the store since it was cached; it is read anew next time");
}

template <typename Fetch>
void CachedDriver::read(const std::string& key,
                        const KnownObject& object,
                        std::uint64_t offset,
                        MutableBytes dst,
                        Fetch fetch) {
  if (dst.empty()) return;
  const std::uint64_t end = offset + dst.size();
  const auto put = [&](std::uint64_t at, ConstBytes bytes) {
    const std::uint64_t from = std::max(at, offset), to = std::min(at + bytes.size(), end);
    std::memcpy(dst.data() + (from - offset), bytes.data() + (from - at), to - from);
  };
  const auto nbytes_of = [&](std::uint64_t first_block, std::uint64_t end_block) {
    return std::min(end_block * block_nbytes_, object.size) - first_block * block_nbytes_;
  };
  // Neighbours that are missing are one request.
  std::uint64_t missing = offset / block_nbytes_;
  const auto fetch_until = [&](std::uint64_t block) {
    if (missing == block) return;
    Buffer run(nbytes_of(missing, block));
    fetch(missing * block_nbytes_, run.bytes());
    misses_ += static_cast<std::int64_t>(block - missing);
    fetched_nbytes_ += static_cast<std::int64_t>(run.size());
    keep_blocks(key, object, missing, run);
    put(missing * block_nbytes_, run);
  };
  std::uint64_t block = missing;
  for (; block * block_nbytes_ < end; ++block) {
    const CachedBytes bytes = find(name_of(key, object, block));
    if (!bytes || bytes->size() != nbytes_of(block, block + 1)) continue;
    put(block * block_nbytes_, *bytes);
    fetch_until(block);
    missing = block + 1;
  }
  fetch_until(block);
}

// Forgets the objects once they are written, even if that failed.
template <typename Write>
void CachedDriver::change(std::span<const std::string> keys, Write write) {
  std::exception_ptr error;
  try {
    write();
  } catch (...) {
    error = std::current_exception();
  }
  for (const std::string& key : keys) forget(key);
  if (error) std::rethrow_exception(error);
}

void CachedDriver::set(std::string_view key, ConstBytes bytes) {
  const std::string keys[] = {std::string(key)};
  change(keys, [&] { store_->set(key, bytes); });
}

void CachedDriver::set_parts(std::string_view key, std::span<const ConstBytes> parts) {
  const std::string keys[] = {std::string(key)};
  change(keys, [&] { store_->set_parts(key, parts); });
}

void CachedDriver::erase(std::string_view key) {
  const std::string keys[] = {std::string(key)};
  change(keys, [&] { store_->erase(key); });
}

void CachedDriver::erase_prefix(std::string_view prefix) {
  const std::vector<std::string> keys = store_->list(prefix);
  change(keys, [&] { store_->erase_prefix(prefix); });
}

void CachedDriver::erase_names(std::span<const StoredName> names, std::string_view kept) {
  std::vector<std::string> keys;
  for (const StoredName& name : names) keys.push_back(name.key);
  change(keys, [&] { store_->erase_names(names, kept); });
}

CacheStats CachedDriver::stats() const {
  CacheStats stats;
  stats.memory_hits = memory_hits_;
  stats.disk_hits = disk_hits_;
  stats.misses = misses_;
  stats.fetched_nbytes = fetched_nbytes_;
  stats.memory_nbytes = static_cast<std::int64_t>(memory_.nbytes());
  if (!disk_) return stats;
  const DiskCache::Stats disk = disk_->stats();
  stats.damaged_files = disk.damaged_files;
  stats.failures = disk.failures;
  stats.last_failure = disk.last_failure;
  return stats;
}

}  // namespace

Store cached_store(const Store& store, const CacheOptions& options) {
  return Store(std::make_shared<CachedDriver>(store.shared_driver(), options));
}

std::optional<CacheOptions> cache_options(const Store& store) {
  const auto* cached = dynamic_cast<const CachedDriver*>(&store.driver());
  return cached ? std::optional(cached->options()) : std::nullopt;
}

CacheStats cache_stats(const Store& store) {
  if (const auto* cached = dynamic_cast<const CachedDriver*>(&store.driver()))
    return cached->stats();
  throw Error(ErrorCode::invalid_argument, "[cache_stats] " + store.url() + " is not cached");
}

}  // namespace headrace
