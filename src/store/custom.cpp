// The engine's view of a store that the application keeps.

#include <algorithm>
#include <cstring>
#include <utility>

#include "headrace/error.h"
#include "headrace/store.h"
#include "store/blocking_reads.h"
#include "store/custom_reads.h"
#include "store/folder_lock.h"
#include "store/store.h"

namespace headrace {
namespace {

// Of a store's answer.
void check_count(const std::string& url, const char* what, std::size_t wanted, std::size_t got) {
  if (got == wanted) return;
  throw Error(
      ErrorCode::invalid_argument,
      url + ": wanted " + std::to_string(wanted) + " " + what + ", got " + std::to_string(got));
}

class CustomReader : public ObjectReader {
 public:
  CustomReader(std::shared_ptr<CustomStore> store, std::string key, std::uint64_t size)
      : store_(std::move(store)), key_(std::move(key)), size_(size) {}

  std::uint64_t size() const override { return size_; }

  void read(std::uint64_t offset, MutableBytes dst) const override {
    read_scattered(offset, {&dst, 1});
  }

  // One request for all: a store across a network answers in milliseconds.
  void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const override {
    const std::uint64_t nbytes = total_size(dsts);
    check_object_range(key_, size_, offset, nbytes);
    if (nbytes == 0) return;
    const std::optional<StoredBytes> found = store_->get_range(key_, {offset, nbytes});
    if (!found) throw_removed();
    check_answered_range(store_->url(), key_, found->bytes.size(), nbytes);
    const std::byte* from = found->bytes.data();
    for (MutableBytes dst : dsts) {
      if (!dst.empty()) std::memcpy(dst.data(), from, dst.size());
      from += dst.size();
    }
  }

  void read_ranges(std::span<const RangeRead> reads) const override {
    std::vector<ByteRange> ranges;
    std::vector<MutableBytes> dsts;
    for (const auto& [offset, dst] : reads) {
      check_object_range(key_, size_, offset, dst.size());
      if (dst.empty()) continue;
      ranges.push_back({offset, dst.size()});
      dsts.push_back(dst);
    }
    if (ranges.empty()) return;
    const auto found = store_->get_ranges(key_, ranges);
    if (!found) throw_removed();
    check_count(store_->url(), "ranges", ranges.size(), found->size());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const ConstBytes bytes = (*found)[i].bytes;
      check_answered_range(store_->url(), key_, bytes.size(), ranges[i].nbytes);
      std::memcpy(dsts[i].data(), bytes.data(), dsts[i].size());
    }
  }

 private:
  [[noreturn]] void throw_removed() const {
    throw Error(ErrorCode::not_found,
                store_->url() + ": " + key_ + " was removed while it was read");
  }

  std::shared_ptr<CustomStore> store_;
  std::string key_;
  std::uint64_t size_;
};

// An object that the application handed over. Its bytes are copied before anybody decodes them: the
// application may write over them.
class HeldReader : public ObjectReader {
 public:
  HeldReader(StoredBytes held, std::string key) : held_(std::move(held)), key_(std::move(key)) {}

  std::uint64_t size() const override { return held_.bytes.size(); }

  void read(std::uint64_t offset, MutableBytes dst) const override {
    check_object_range(key_, size(), offset, dst.size());
    if (!dst.empty()) std::memcpy(dst.data(), held_.bytes.data() + offset, dst.size());
  }

 private:
  const StoredBytes held_;
  const std::string key_;
};

class CustomDriver : public StoreDriver {
 public:
  explicit CustomDriver(std::shared_ptr<CustomStore> store) : store_(std::move(store)) {
    if (store_->depth() > 0) {
      reads_ = std::make_unique<CustomReads>(store_);
    } else if (!store_->local()) {
      reads_ = std::make_unique<BlockingReads>(store_);
    }
  }

  std::string url() const override { return store_->url(); }
  bool read_only() const override { return store_->read_only(); }
  bool local() const override { return store_->local(); }
  std::string identity(std::string_view prefix) override {
    return store_->identity(std::string(prefix));
  }
  std::string lasting_name() override {
    std::string name = store_->lasting_name();
    return name.empty() ? name_within_process(name_) : name;
  }
  // Never made: where an application's prefixes lie is the application's to decide.
  LockAttempt try_lock(std::string_view prefix, MissingFolder) override {
    const std::string folder = store_->folder(std::string(prefix));
    return folder.empty() ? LockAttempt() : try_lock_folder(folder);
  }
  std::optional<Coalescing> coalescing() const override { return store_->coalescing(); }
  AsyncReads* async_reads() override { return reads_.get(); }
  std::size_t batch_size() const override { return std::max<std::size_t>(store_->batch_size(), 1); }

  bool get(std::string_view key, Buffer& into) override {
    return get_within(key, into, UINT64_MAX);
  }

  // What the application hands over is in memory already; it is not copied.
  bool get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) override {
    GetRequest request{std::string(key), &into, false, nullptr, max_nbytes};
    get_many({&request, 1});
    if (request.error) std::rethrow_exception(request.error);
    return request.found;
  }

  void get_many(std::span<GetRequest> requests) override {
    std::vector<std::string> keys;
    for (const GetRequest& request : requests) {
      check_key(request.key);
      keys.push_back(request.key);
    }
    const auto found = store_->get(keys);
    check_count(url(), "objects", keys.size(), found.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].error = nullptr;
      requests[i].found = false;
      if (!found[i]) continue;
      try {
        check_object_nbytes(requests[i].key, found[i]->bytes.size(), requests[i].max_nbytes);
        requests[i].into->assign(found[i]->bytes);
        requests[i].found = true;
      } catch (...) {
        requests[i].error = std::current_exception();
      }
    }
  }

  std::unique_ptr<ObjectReader> open(std::string_view key) override {
    check_key(key);
    std::string name(key);
    if (store_->in_memory()) {
      auto found = store_->get({&name, 1});
      check_count(url(), "objects", 1, found.size());
      if (!found[0]) return nullptr;
      return std::make_unique<HeldReader>(std::move(*found[0]), std::move(name));
    }
    const std::optional<std::uint64_t> size = store_->size(name);
    if (!size) return nullptr;
    return std::make_unique<CustomReader>(store_, std::move(name), *size);
  }

  bool exists(std::string_view key) override {
    check_key(key);
    return store_->size(std::string(key)).has_value();
  }

  void set(std::string_view key, ConstBytes bytes) override {
    check_writable();
    check_key(key);
    store_->set(std::string(key), bytes);
  }

  void erase(std::string_view key) override {
    check_writable();
    check_key(key);
    store_->erase(std::string(key));
  }

  void erase_prefix(std::string_view prefix) override {
    check_writable();
    store_->erase_prefix(folder(prefix));
  }

  std::vector<std::string> list(std::string_view prefix) override {
    auto keys = store_->list(folder(prefix));
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  // Whether a name is an object or a prefix the store does not say; who asks looks below it.
  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    auto names = store_->list_dir(folder(prefix));
    std::sort(names.begin(), names.end());
    std::vector<DirEntry> entries;
    for (std::string& name : names) entries.push_back({std::move(name), true});
    return entries;
  }

 private:
  static std::string folder(std::string_view prefix) {
    std::string clean(check_prefix(prefix));
    if (!clean.empty()) clean += '/';
    return clean;
  }

  void check_writable() const {
    if (read_only()) throw_read_only(url());
  }

  std::shared_ptr<CustomStore> store_;
  std::unique_ptr<AsyncReads> reads_;  // null: it answers at once
  const std::string name_ = new_store_name();
};

}  // namespace

void CustomStore::submit(std::vector<StoreRead>, std::shared_ptr<StoreAnswers>) {
  throw Error(ErrorCode::unsupported, url() + " has a depth() and no submit()");
}

void CustomStore::cancel(std::uint64_t) {}

std::string CustomStore::identity(const std::string& prefix) const {
  return "custom:" + url() + '/' + prefix;
}

std::string CustomStore::lasting_name() const { return {}; }

std::string CustomStore::folder(const std::string&) const { return {}; }

std::optional<std::vector<StoredBytes>> CustomStore::get_ranges(const std::string& key,
                                                                std::span<const ByteRange> ranges) {
  std::vector<StoredBytes> all;
  for (const ByteRange& range : ranges) {
    std::optional<StoredBytes> found = get_range(key, range);
    if (!found) return std::nullopt;
    all.push_back(std::move(*found));
  }
  return all;
}

Store make_store(std::shared_ptr<CustomStore> store) {
  if (!store) throw Error(ErrorCode::invalid_argument, "[make_store] no store");
  return Store(std::make_shared<CustomDriver>(std::move(store)));
}

}  // namespace headrace
