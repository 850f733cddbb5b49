#include "conformance/inject.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/error.h"

namespace headrace::test {

namespace {

[[noreturn]] void throw_injected(const char* action, std::string_view key, int os_error) {
  throw Error(ErrorCode::io,
              std::string(action) + " " + std::string(key) + ": " +
                  std::generic_category().message(os_error) + " (injected)",
              os_error);
}

// Passes everything on.
class Wrapper : public StoreDriver {
 public:
  explicit Wrapper(std::shared_ptr<StoreDriver> store) : store_(std::move(store)) {}

  std::string url() const override { return store_->url(); }
  bool read_only() const override { return store_->read_only(); }
  bool local() const override { return store_->local(); }
  bool has_files() const override { return store_->has_files(); }
  std::size_t batch_size() const override { return store_->batch_size(); }
  bool exists(std::string_view key) override { return store_->exists(key); }
  void erase(std::string_view key) override { store_->erase(key); }
  void erase_prefix(std::string_view prefix) override { store_->erase_prefix(prefix); }
  std::vector<std::string> list(std::string_view prefix) override { return store_->list(prefix); }
  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    return store_->list_dir(prefix);
  }
  void close() override { store_->close(); }
  std::string identity(std::string_view prefix) override { return store_->identity(prefix); }
  std::string lasting_name() override { return store_->lasting_name(); }
  LockAttempt try_lock(std::string_view prefix, MissingFolder missing) override {
    return store_->try_lock(prefix, missing);
  }
  bool holds_only_keys() const override { return store_->holds_only_keys(); }
  bool is_link(std::string_view prefix) override { return store_->is_link(prefix); }
  std::vector<StoredName> list_names(std::string_view prefix) override {
    return store_->list_names(prefix);
  }
  void discard() override { store_->discard(); }
  void sync() override { store_->sync(); }

 protected:
  std::shared_ptr<StoreDriver> store_;
};

class FaultyReader : public ObjectReader {
 public:
  FaultyReader(std::unique_ptr<ObjectReader> reader,
               std::shared_ptr<Faults> faults,
               std::string key)
      : reader_(std::move(reader)), faults_(std::move(faults)), key_(std::move(key)) {}

  std::uint64_t size() const override { return faults_->visible_size(key_, reader_->size()); }
  std::uint64_t version() const override { return reader_->version(); }
  bool unchanged() const override { return reader_->unchanged(); }
  void read(std::uint64_t offset, MutableBytes dst) const override {
    faults_->before_read(key_);
    check_object_range(key_, size(), offset, dst.size());
    reader_->read(offset, dst);
    faults_->damage(key_, offset, dst);
  }

 private:
  std::unique_ptr<ObjectReader> reader_;
  std::shared_ptr<Faults> faults_;
  std::string key_;
};

class FaultyStore : public Wrapper {
 public:
  FaultyStore(std::shared_ptr<StoreDriver> store, std::shared_ptr<Faults> faults)
      : Wrapper(std::move(store)), faults_(std::move(faults)) {}

  bool get(std::string_view key, Buffer& into) override {
    faults_->before_read(key);
    if (!store_->get(key, into)) return false;
    show(key, into);
    return true;
  }
  void get_many(std::span<GetRequest> requests) override {
    std::vector<std::exception_ptr> injected(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      try {
        faults_->before_read(requests[i].key);
      } catch (...) {
        injected[i] = std::current_exception();
      }
    }
    store_->get_many(requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      GetRequest& request = requests[i];
      if (injected[i]) {
        request.found = false;
        request.error = injected[i];
      }
      if (request.found) show(request.key, *request.into);
    }
  }
  std::unique_ptr<ObjectReader> open(std::string_view key) override {
    auto reader = store_->open(key);
    if (!reader) return nullptr;
    return std::make_unique<FaultyReader>(std::move(reader), faults_, std::string(key));
  }
  void set(std::string_view key, ConstBytes bytes) override {
    faults_->before_write(key, bytes.size());
    store_->set(key, bytes);
  }
  void erase(std::string_view key) override {
    faults_->before_write(key, 0);
    store_->erase(key);
  }
  void erase_prefix(std::string_view prefix) override {
    faults_->before_write(prefix, 0);
    store_->erase_prefix(prefix);
  }

 private:
  void show(std::string_view key, Buffer& object) {
    object.resize_keep(static_cast<std::size_t>(faults_->visible_size(key, object.size())));
    faults_->damage(key, 0, object.bytes());
  }

  std::shared_ptr<Faults> faults_;
};

class UnlockedStore : public Wrapper {
 public:
  UnlockedStore(std::shared_ptr<StoreDriver> store, std::shared_ptr<StoreHook> hook)
      : Wrapper(std::move(store)), hook_(std::move(hook)) {}

  LockAttempt try_lock(std::string_view, MissingFolder) override { return {}; }
  bool get(std::string_view key, Buffer& into) override {
    call("get", key);
    return store_->get(key, into);
  }
  std::unique_ptr<ObjectReader> open(std::string_view key) override { return store_->open(key); }
  bool exists(std::string_view key) override {
    call("exists", key);
    return store_->exists(key);
  }
  void set(std::string_view key, ConstBytes bytes) override {
    call("set", key);
    store_->set(key, bytes);
  }

 private:
  void call(std::string_view what, std::string_view key) {
    const StoreHook hook = *hook_;  // it may replace itself
    if (hook) hook(what, key);
  }

  std::shared_ptr<StoreHook> hook_;
};

}  // namespace

void Faults::fail_read(long nth, int os_error) {
  std::lock_guard lock(mutex_);
  reads_left_ = nth;
  read_error_ = os_error;
}

void Faults::fail_write(long nth, int os_error) {
  std::lock_guard lock(mutex_);
  writes_left_ = nth;
  write_error_ = os_error;
}

void Faults::limit_space(std::uint64_t nbytes) {
  std::lock_guard lock(mutex_);
  space_limited_ = true;
  space_left_ = nbytes;
}

void Faults::shorten(const std::string& key, std::uint64_t nbytes) {
  std::lock_guard lock(mutex_);
  sizes_[key] = nbytes;
}

void Faults::flip_byte(const std::string& key, std::uint64_t offset) {
  std::lock_guard lock(mutex_);
  flips_.emplace(key, offset);
}

void Faults::delay_reads_ms(int ms) {
  std::lock_guard lock(mutex_);
  delay_ms_ = ms;
}

void Faults::clear() {
  std::lock_guard lock(mutex_);
  reads_left_ = writes_left_ = 0;
  space_limited_ = false;
  delay_ms_ = 0;
  sizes_.clear();
  flips_.clear();
}

void Faults::before_read(std::string_view key) {
  int delay = 0;
  {
    std::lock_guard lock(mutex_);
    if (reads_left_ > 0 && --reads_left_ == 0) throw_injected("read", key, read_error_);
    delay = delay_ms_;
  }
  if (delay > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay));
}

void Faults::before_write(std::string_view key, std::uint64_t nbytes) {
  std::lock_guard lock(mutex_);
  if (writes_left_ > 0 && --writes_left_ == 0) throw_injected("write", key, write_error_);
  if (!space_limited_) return;
  if (nbytes > space_left_) throw_injected("write", key, ENOSPC);
  space_left_ -= nbytes;
}

std::uint64_t Faults::visible_size(std::string_view key, std::uint64_t size) const {
  std::lock_guard lock(mutex_);
  auto it = sizes_.find(key);
  return it == sizes_.end() ? size : std::min(size, it->second);
}

void Faults::damage(std::string_view key, std::uint64_t offset, MutableBytes bytes) const {
  std::lock_guard lock(mutex_);
  for (auto [it, end] = flips_.equal_range(key); it != end; ++it) {
    if (it->second >= offset && it->second - offset < bytes.size()) {
      bytes[static_cast<std::size_t>(it->second - offset)] ^= std::byte{0xff};
    }
  }
}

std::shared_ptr<StoreDriver> make_unlocked_store(std::shared_ptr<StoreDriver> store,
                                                 std::shared_ptr<StoreHook> hook) {
  return std::make_shared<UnlockedStore>(std::move(store), std::move(hook));
}

std::shared_ptr<StoreDriver> make_faulty_store(std::shared_ptr<StoreDriver> store,
                                               std::shared_ptr<Faults> faults) {
  return std::make_shared<FaultyStore>(std::move(store), std::move(faults));
}

namespace {

class BatchingStore : public Wrapper {
 public:
  BatchingStore(std::shared_ptr<StoreDriver> store, std::size_t batch)
      : Wrapper(std::move(store)), batch_(batch) {}

  bool local() const override { return false; }
  std::size_t batch_size() const override { return batch_; }
  bool get(std::string_view key, Buffer& into) override { return store_->get(key, into); }
  std::unique_ptr<ObjectReader> open(std::string_view key) override { return store_->open(key); }
  void set(std::string_view key, ConstBytes bytes) override { store_->set(key, bytes); }

 private:
  const std::size_t batch_;
};

}  // namespace

std::shared_ptr<StoreDriver> make_batching_store(std::shared_ptr<StoreDriver> store,
                                                 std::size_t batch) {
  return std::make_shared<BatchingStore>(std::move(store), batch);
}

namespace {

class ReadUnderWay {
 public:
  ReadUnderWay(StoreCounts& counts, std::atomic<long>& now) : now_(now) {
    long count = ++now_;
    long most = counts.most_at_once.load();
    while (count > most && !counts.most_at_once.compare_exchange_weak(most, count)) {
    }
  }
  ~ReadUnderWay() { --now_; }

 private:
  std::atomic<long>& now_;
};

struct SharedCounts {
  std::shared_ptr<StoreCounts> counts;
  std::atomic<long> now{0};
};

class CountingReader : public ObjectReader {
 public:
  CountingReader(std::unique_ptr<ObjectReader> reader, std::shared_ptr<SharedCounts> shared)
      : reader_(std::move(reader)), shared_(std::move(shared)) {}

  std::uint64_t size() const override { return reader_->size(); }
  std::uint64_t version() const override { return reader_->version(); }
  bool unchanged() const override { return reader_->unchanged(); }
  void read(std::uint64_t offset, MutableBytes dst) const override {
    read_scattered(offset, {&dst, 1});
  }
  void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const override {
    ReadUnderWay under_way(*shared_->counts, shared_->now);
    ++shared_->counts->range_reads;
    for (MutableBytes dst : dsts) shared_->counts->bytes_read += static_cast<long>(dst.size());
    reader_->read_scattered(offset, dsts);
  }
  ConstBytes mapped() const override { return reader_->mapped(); }

 private:
  std::unique_ptr<ObjectReader> reader_;
  std::shared_ptr<SharedCounts> shared_;
};

class CountingStore : public Wrapper {
 public:
  CountingStore(std::shared_ptr<StoreDriver> store, std::shared_ptr<StoreCounts> counts)
      : Wrapper(std::move(store)), shared_(std::make_shared<SharedCounts>()) {
    shared_->counts = std::move(counts);
  }

  bool get(std::string_view key, Buffer& into) override {
    ReadUnderWay under_way(counts(), shared_->now);
    ++counts().gets;
    if (!store_->get(key, into)) return false;
    counts().bytes_read += static_cast<long>(into.size());
    return true;
  }
  std::unique_ptr<ObjectReader> open(std::string_view key) override {
    ++counts().opens;
    auto reader = store_->open(key);
    if (!reader) return nullptr;
    return std::make_unique<CountingReader>(std::move(reader), shared_);
  }
  void get_many(std::span<GetRequest> requests) override {
    ReadUnderWay under_way(counts(), shared_->now);
    ++counts().batches;
    counts().gets += static_cast<long>(requests.size());
    store_->get_many(requests);
    for (const GetRequest& request : requests) {
      if (request.found) counts().bytes_read += static_cast<long>(request.into->size());
    }
  }
  bool exists(std::string_view key) override {
    ++counts().exists;
    return store_->exists(key);
  }
  void set(std::string_view key, ConstBytes bytes) override {
    ++counts().sets;
    store_->set(key, bytes);
    counts().bytes_written += static_cast<long>(bytes.size());
  }
  void set_parts(std::string_view key, std::span<const ConstBytes> parts) override {
    ++counts().sets;
    counts().parts += static_cast<long>(parts.size());
    store_->set_parts(key, parts);
    counts().bytes_written += static_cast<long>(total_size(parts));
  }
  void erase(std::string_view key) override {
    ++counts().erases;
    store_->erase(key);
  }
  void erase_prefix(std::string_view prefix) override {
    ++counts().erases;
    store_->erase_prefix(prefix);
  }
  std::vector<std::string> list(std::string_view prefix) override {
    ++counts().lists;
    return store_->list(prefix);
  }
  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    ++counts().lists;
    return store_->list_dir(prefix);
  }

 private:
  StoreCounts& counts() { return *shared_->counts; }
  std::shared_ptr<SharedCounts> shared_;
};

}  // namespace

void StoreCounts::reset() {
  for (std::atomic<long>* count : {&gets,
                                   &batches,
                                   &opens,
                                   &range_reads,
                                   &bytes_read,
                                   &exists,
                                   &sets,
                                   &parts,
                                   &bytes_written,
                                   &erases,
                                   &lists,
                                   &most_at_once}) {
    *count = 0;
  }
}

std::shared_ptr<StoreDriver> make_counting_store(std::shared_ptr<StoreDriver> store,
                                                 std::shared_ptr<StoreCounts> counts) {
  return std::make_shared<CountingStore>(std::move(store), std::move(counts));
}

std::vector<std::string> StoreRecord::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(requests_, {});
}

void StoreRecord::add(std::string request) {
  std::lock_guard lock(mutex_);
  requests_.push_back(std::move(request));
}

namespace {

std::string range_text(std::uint64_t offset, std::uint64_t nbytes) {
  return " " + std::to_string(offset) + "+" + std::to_string(nbytes);
}

class RecordingReader : public ObjectReader {
 public:
  RecordingReader(std::unique_ptr<ObjectReader> reader,
                  std::shared_ptr<StoreRecord> record,
                  std::string key)
      : reader_(std::move(reader)), record_(std::move(record)), key_(std::move(key)) {}

  std::uint64_t size() const override { return reader_->size(); }
  std::uint64_t version() const override { return reader_->version(); }
  bool unchanged() const override { return reader_->unchanged(); }
  void read(std::uint64_t offset, MutableBytes dst) const override {
    record_->add("read " + key_ + range_text(offset, dst.size()));
    reader_->read(offset, dst);
  }
  void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const override {
    std::string request = (dsts.size() == 1 ? "read " : "scattered ") + key_;
    for (const MutableBytes dst : dsts) {
      request += range_text(offset, dst.size());
      offset += dst.size();
    }
    record_->add(std::move(request));
    reader_->read_scattered(offset - total_size(dsts), dsts);
  }
  void read_ranges(std::span<const RangeRead> reads) const override {
    if (reads.empty()) return;
    std::string request = (reads.size() == 1 ? "read " : "ranges ") + key_;
    for (const auto& [offset, dst] : reads) request += range_text(offset, dst.size());
    record_->add(std::move(request));
    reader_->read_ranges(reads);
  }

 private:
  std::unique_ptr<ObjectReader> reader_;
  std::shared_ptr<StoreRecord> record_;
  std::string key_;
};

class RecordingStore : public Wrapper {
 public:
  RecordingStore(std::shared_ptr<StoreDriver> store,
                 StoreManners manners,
                 std::shared_ptr<StoreRecord> record)
      : Wrapper(std::move(store)), manners_(manners), record_(std::move(record)) {}

  bool local() const override { return manners_.local; }
  std::size_t batch_size() const override { return manners_.batch_size; }
  std::optional<Coalescing> coalescing() const override { return manners_.coalescing; }
  bool get(std::string_view key, Buffer& into) override {
    record_->add("get " + std::string(key));
    return store_->get(key, into);
  }
  std::unique_ptr<ObjectReader> open(std::string_view key) override {
    record_->add("open " + std::string(key));
    auto reader = store_->open(key);
    if (!reader) return nullptr;
    return std::make_unique<RecordingReader>(std::move(reader), record_, std::string(key));
  }
  void get_many(std::span<GetRequest> requests) override {
    std::string request = "many";
    for (const GetRequest& each : requests) request += " " + each.key;
    record_->add(std::move(request));
    store_->get_many(requests);
  }
  void set(std::string_view key, ConstBytes bytes) override { store_->set(key, bytes); }

 private:
  const StoreManners manners_;
  std::shared_ptr<StoreRecord> record_;
};

}  // namespace

std::shared_ptr<StoreDriver> make_recording_store(std::shared_ptr<StoreDriver> store,
                                                  StoreManners manners,
                                                  std::shared_ptr<StoreRecord> record) {
  return std::make_shared<RecordingStore>(std::move(store), manners, std::move(record));
}

}  // namespace headrace::test
