#include "store/memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <unordered_map>

#include "base/fork_mutex.h"
#include "base/trace.h"
#include "store/key_list.h"
#include "store/url.h"

namespace headrace {

namespace {

// No two objects have the same, of this process or of others that use a cache folder with it.
std::uint64_t next_version() {
  static std::atomic<std::uint64_t> next = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random() | 1;  // odd for ever, so never 0
  }();
  return next.fetch_add(2, std::memory_order_relaxed);
}

}  // namespace

struct MemoryObject {
  Buffer bytes;
  const std::uint64_t version = next_version();
};
using Value = std::shared_ptr<const MemoryObject>;

// Values are shared, never changed: a reader that holds one is untouched by a later set().
class MemoryContents {
 public:
  const std::string& name() const { return name_; }

  Value find(std::string_view key) {
    Shard& shard = shard_of(key);
    ForkLock lock(shard.mutex);
    auto it = shard.values.find(key);
    return it == shard.values.end() ? nullptr : it->second;
  }

  void set(std::string_view key, Value value) {
    std::string name(key);
    Shard& shard = shard_of(key);
    // The old value leaves through `value`, freed after the lock: freeing may take another one.
    ForkLock lock(shard.mutex);
    shard.place_of(std::move(name)).swap(value);
  }

  // False: there is one already.
  bool set_new(std::string_view key, Value value) {
    std::string name(key);
    Shard& shard = shard_of(key);
    ForkLock lock(shard.mutex);
    Value& place = shard.place_of(std::move(name));
    if (place) return false;
    place = std::move(value);
    return true;
  }

  void erase(std::string_view key) {
    Value old;
    Shard& shard = shard_of(key);
    ForkLock lock(shard.mutex);
    auto it = shard.values.find(key);
    if (it == shard.values.end()) return;
    old.swap(it->second);
    shard.keys.erase(it->first);
    shard.values.erase(it);
  }

  void erase_below(std::string_view prefix) {
    const std::string first = first_below(prefix);
    for (Shard& shard : shards_) {
      std::vector<Value> old;
      ForkLock lock(shard.mutex);
      for (auto key = shard.keys.lower_bound(first);
           key != shard.keys.end() && lies_below(*key, prefix);) {
        const auto it = shard.values.find(*key);
        old.push_back(std::move(it->second));
        key = shard.keys.erase(key);
        shard.values.erase(it);
      }
    }
  }

  std::vector<std::string> keys_below(std::string_view prefix) {
    std::vector<std::string> keys;
    const std::string first = first_below(prefix);
    for (Shard& shard : shards_) {
      ForkLock lock(shard.mutex);
      for (auto key = shard.keys.lower_bound(first);
           key != shard.keys.end() && lies_below(*key, prefix);
           ++key) {
        keys.emplace_back(*key);
      }
    }
    std::sort(keys.begin(), keys.end());
    return keys;
  }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct alignas(64) Shard {
    ForkMutex mutex;
    std::unordered_map<std::string, Value, Hash, std::equal_to<>> values GUARDED_BY(mutex);
    // Those of `values`, in order: what lies below a prefix is found without a look at the others.
    std::set<std::string_view> keys GUARDED_BY(mutex);

    // Null: a new one.
    Value& place_of(std::string name) REQUIRES(mutex) {
      const auto [at, is_new] = values.try_emplace(std::move(name));
      if (!is_new) return at->second;
      try {
        keys.insert(at->first);
      } catch (...) {
        values.erase(at);
        throw;
      }
      return at->second;
    }
  };

  // Of all keys below a prefix none is before it.
  static std::string first_below(std::string_view prefix) {
    return prefix.empty() ? std::string() : std::string(prefix) + '/';
  }

  Shard& shard_of(std::string_view key) {
    // The map uses the low bits of the same hash.
    return shards_[(std::hash<std::string_view>()(key) >> 40) % shards_.size()];
  }

  const std::string name_ = new_store_name();
  std::array<Shard, 16> shards_;
};

namespace {

class MemoryReader : public ObjectReader {
 public:
  MemoryReader(Value value, std::string key) : value_(std::move(value)), key_(std::move(key)) {}

  std::uint64_t size() const override { return value_->bytes.size(); }
  std::uint64_t version() const override { return value_->version; }
  void read(std::uint64_t offset, MutableBytes dst) const override {
    const Span span("fetch", dst.size());
    check_object_range(key_, size(), offset, dst.size());
    if (!dst.empty()) std::memcpy(dst.data(), value_->bytes.data() + offset, dst.size());
  }
  ConstBytes mapped() const override { return value_->bytes; }

 private:
  Value value_;
  std::string key_;
};

class MemoryStore : public StoreDriver {
 public:
  MemoryStore(std::shared_ptr<MemoryContents> contents, std::string url, bool read_only)
      : contents_(std::move(contents)), url_(std::move(url)), read_only_(read_only) {}

  std::string url() const override { return url_; }
  bool read_only() const override { return read_only_; }

  bool get(std::string_view key, Buffer& into) override {
    return get_within(key, into, UINT64_MAX);
  }

  bool get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) override {
    check_key(key);
    Value value = contents_->find(key);
    if (!value) return false;
    check_object_nbytes(key, value->bytes.size(), max_nbytes);
    into.assign(value->bytes);
    return true;
  }

  std::unique_ptr<ObjectReader> open(std::string_view key) override {
    check_key(key);
    Value value = contents_->find(key);
    if (!value) return nullptr;
    return std::make_unique<MemoryReader>(std::move(value), std::string(key));
  }

  bool exists(std::string_view key) override {
    check_key(key);
    return contents_->find(key) != nullptr;
  }

  void set(std::string_view key, ConstBytes bytes) override {
    check_writable();
    check_key(key);
    auto value = std::make_shared<MemoryObject>();
    value->bytes.assign(bytes);
    contents_->set(key, std::move(value));
  }

  WriteConditions write_conditions() const override { return {.missing = true}; }
  std::string set_if(std::string_view key,
                     std::span<const ConstBytes> parts,
                     const WriteCondition& condition) override {
    if (condition.kind != WriteCondition::Kind::missing) {
      return StoreDriver::set_if(key, parts, condition);
    }
    check_writable();
    check_key(key);
    auto value = std::make_shared<MemoryObject>();
    for (const ConstBytes part : parts) value->bytes.append(part);
    if (!contents_->set_new(key, std::move(value))) throw_exists(key);
    return {};
  }

  void erase(std::string_view key) override {
    check_writable();
    check_key(key);
    contents_->erase(key);
  }

  void erase_prefix(std::string_view prefix) override {
    check_writable();
    contents_->erase_below(check_prefix(prefix));
  }

  std::vector<std::string> list(std::string_view prefix) override {
    return contents_->keys_below(check_prefix(prefix));
  }

  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    prefix = check_prefix(prefix);
    return names_directly_below(contents_->keys_below(prefix), prefix);
  }

  std::string identity(std::string_view prefix) override {
    return "memory:" + std::to_string(reinterpret_cast<std::uintptr_t>(contents_.get())) + '/' +
           std::string(prefix);
  }
  // "memory://NAME" is another store in each process.
  std::string lasting_name() override { return name_within_process(contents_->name()); }
  LockAttempt try_lock(std::string_view, MissingFolder) override {
    return {LockAttempt::State::held};
  }
  bool holds_only_keys() const override { return true; }

 private:
  void check_writable() const {
    if (read_only_) throw_read_only(url_);
  }

  std::shared_ptr<MemoryContents> contents_;
  std::string url_;
  bool read_only_;
};

struct NamedStores {
  ForkMutex mutex;
  std::map<std::string, std::shared_ptr<MemoryContents>> contents GUARDED_BY(mutex);
};

// Never destroyed: threads may use a store while the process ends.
NamedStores& named_stores() {
  static NamedStores& stores = *new NamedStores;
  return stores;
}

}  // namespace

std::shared_ptr<MemoryContents> new_memory_contents() { return std::make_shared<MemoryContents>(); }

std::shared_ptr<MemoryContents> named_memory_contents(const std::string& name,
                                                      bool create,
                                                      bool& created) {
  // Made before the lock: making a ForkMutex may take the lock of their list.
  auto fresh = create ? new_memory_contents() : nullptr;
  NamedStores& stores = named_stores();
  ForkLock lock(stores.mutex);
  auto it = stores.contents.find(name);
  created = it == stores.contents.end() && create;
  if (created) it = stores.contents.emplace(name, fresh).first;
  return it == stores.contents.end() ? nullptr : it->second;
}

std::unique_ptr<StoreDriver> make_memory_store(std::shared_ptr<MemoryContents> contents,
                                               const std::string& name,
                                               bool read_only) {
  return std::make_unique<MemoryStore>(
      std::move(contents), "memory://" + percent_encode_path(name), read_only);
}

}  // namespace headrace
