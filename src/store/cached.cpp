// A store in front of another, which keeps what was read in memory and in a folder.
//
// What is known of an object is its size, its version in the store behind, and a number that it was
// given when it was seen first. Its blocks are kept by that number, and a number is of one version:
// once an object is written, or seen to have changed, another number is made, and the blocks of the
// old one are nobody's and go in time. So blocks of two versions never meet.
//
// Of a store that cannot tell versions (version 0) a number is of what had that size. What one
// range asks for is then all kept or all fetched, and what is fetched once more tells by its bytes
// whether the object is still the same.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/fork_mutex.h"
#include "base/key_locks.h"
#include "headrace/cached_store.h"
#include "headrace/error.h"
#include "store/cache_disk.h"
#include "store/cache_memory.h"
#include "store/flights.h"
#include "store/store.h"

namespace headrace {
namespace {

constexpr int kAttempts = 4;  // to read an object that is written all the time

struct KnownObject {
  std::uint64_t size = 0, version = 0;
  std::uint64_t number = 0;  // 0: seen while it was written; nothing of it is kept
};
constexpr std::size_t kRecordNbytes = 3 * sizeof(std::uint64_t);

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

CachedBytes record_of(const KnownObject& object) {
  auto bytes = std::make_shared<Buffer>(kRecordNbytes);
  std::byte* at = bytes->data();
  for (const std::uint64_t value : {object.size, object.version, object.number}) {
    store_le(at, value);
    at += sizeof value;
  }
  return bytes;
}

std::optional<KnownObject> object_of(ConstBytes record) {
  if (record.size() != kRecordNbytes) return std::nullopt;
  const auto value = [&](std::size_t i) {
    return load_le<std::uint64_t>(record.data() + i * sizeof(std::uint64_t));
  };
  if (value(2) == 0) return std::nullopt;
  return KnownObject{value(0), value(1), value(2)};
}

[[noreturn]] void throw_removed(const std::string& url, const std::string& key) {
  throw Error(ErrorCode::not_found, url + ": " + key + " was removed while it was read");
}

// Consecutive bytes from each run's offset on go to the places from its first to the next run's.
void read_runs(const ObjectReader& behind,
               std::span<RangeRead> runs,
               std::span<const std::size_t> first_of_run,
               std::span<const MutableBytes> places) {
  const auto places_of = [&](std::size_t run) {
    const std::size_t end = run + 1 < runs.size() ? first_of_run[run + 1] : places.size();
    return places.subspan(first_of_run[run], end - first_of_run[run]);
  };
  std::vector<Buffer> buffers(runs.size());
  for (std::size_t run = 0; run < runs.size(); ++run) {
    buffers[run].resize(total_size(places_of(run)));
    runs[run].dst = buffers[run].bytes();
  }
  behind.read_ranges(runs);
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const std::byte* from = buffers[run].data();
    for (const MutableBytes place : places_of(run)) {
      std::memcpy(place.data(), from, place.size());
      from += place.size();
    }
  }
}

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
  std::string identity(std::string_view prefix) override { return store_->identity(prefix); }
  bool get_latest(std::string_view key, Buffer& into, std::uint64_t max_nbytes) override {
    return store_->get_latest(key, into, max_nbytes);
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
  std::map<std::string, int> written_;  // under written_mutex_; by how many writes at this time
  std::atomic<std::int64_t> memory_hits_{0}, disk_hits_{0}, misses_{0}, fetched_nbytes_{0};
};

// Where nothing of the object was told yet, neither bytes nor its version, the reader changes to
// what the store has now; else what was told before and after would be of two objects.
class CachedReader final : public ObjectReader {
 public:
  CachedReader(std::shared_ptr<CachedDriver> driver, std::string key, Source source)
      : driver_(std::move(driver)),
        key_(std::move(key)),
        size_(source.object.size),
        source_(std::move(source)) {}

  std::uint64_t size() const override { return size_; }
  std::uint64_t version() const override {
    const ForkLock lock(mutex_);
    ++told_;
    return source_.object.number;
  }

  void read(std::uint64_t offset, MutableBytes dst) const override {
    const RangeRead all{offset, dst};
    read_ranges({&all, 1});
  }

  void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const override {
    check_object_range(key_, size_, offset, total_size(dsts));
    std::vector<RangeRead> reads;
    for (const MutableBytes dst : dsts) {
      reads.push_back({offset, dst});
      offset += dst.size();
    }
    read_ranges(reads);
  }

  void read_ranges(std::span<const RangeRead> reads) const override {
    for (const RangeRead& each : reads)
      check_object_range(key_, size_, each.offset, each.dst.size());
    bool first = false;
    Source source = begin(first);
    for (int attempt = 1;; ++attempt) {
      try {
        driver_->read(key_, source, reads);
        break;
      } catch (const Error& error) {
        if (!first || attempt == kAttempts || !is_changed(error)) throw;
      }
      source = change();
    }
    const ForkLock lock(mutex_);
    if (source.object.number == source_.object.number) source_.behind = source.behind;
  }

 private:
  Source begin(bool& first) const {
    const ForkLock lock(mutex_);
    first = told_++ == 0;
    return source_;
  }

  // By the one read that was begun.
  Source change() const {
    std::optional<Source> source = driver_->open_now(key_);
    if (!source) throw_removed(driver_->url(), key_);
    bool is_late = source->object.size != size_;
    {
      const ForkLock lock(mutex_);
      is_late = is_late || told_ > 1;
      if (!is_late) source_ = *source;
    }
    if (is_late) throw_changed(driver_->url() + ": " + key_);
    return *std::move(source);
  }

  const std::shared_ptr<CachedDriver> driver_;
  const std::string key_;
  const std::uint64_t size_;
  mutable ForkMutex mutex_;  // guards what follows
  mutable Source source_;
  mutable long told_ = 0;  // reads that were begun, and who asked for the version
};

// No number is 0.
std::uint64_t new_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random() | 1;
}

CachedDriver::CachedDriver(std::shared_ptr<StoreDriver> store, const CacheOptions& options)
    : store_(std::move(store)),
      options_(options),
      block_nbytes_(options.block_nbytes),
      memory_(options.memory_nbytes) {
  if (block_nbytes_ == 0)
    throw Error(ErrorCode::invalid_argument, "[cached_store] blocks of 0 bytes");
  if (options.directory.empty()) return;
  check_apart(options.directory, store_->url());
  disk_ = std::make_unique<DiskCache>(
      options.directory, options.disk_nbytes, std::max(options.block_nbytes, kRecordNbytes));
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
CachedBytes CachedDriver::find(const std::string& name, std::uint64_t nbytes) {
  if (CachedBytes bytes = memory_.find(name); bytes && bytes->size() == nbytes) {
    ++memory_hits_;
    return bytes;
  }
  CachedBytes bytes = disk_ ? disk_->find(name) : nullptr;
  if (!bytes || bytes->size() != nbytes) return nullptr;
  ++disk_hits_;
  memory_.put(name, bytes);
  return bytes;
}

void CachedDriver::keep(const std::string& name, CachedBytes bytes) {
  if (disk_) disk_->put(name, *bytes);
  memory_.put(name, std::move(bytes));
}

std::optional<KnownObject> CachedDriver::find_object(std::string_view key) {
  const std::string name = name_of(key);
  CachedBytes known = memory_.find(name);
  if (!known && disk_) {
    const auto lock = locks_.lock(name);
    known = disk_->find(name);
    if (known) memory_.put(name, known);
  }
  return known ? object_of(*known) : std::nullopt;
}

KnownObject CachedDriver::remember(
    std::string_view key, std::uint64_t size, std::uint64_t version, long writes, bool fresh) {
  KnownObject object{size, version, 0};
  const std::string name = name_of(key);
  const auto lock = locks_.lock(name);
  if (writes != writes_ || is_written(name)) return object;
  CachedBytes record = memory_.find(name);
  if (!record && disk_) record = disk_->find(name);
  const std::optional<KnownObject> known = record ? object_of(*record) : std::nullopt;
  const bool is_same = known && known->size == size && known->version == version;
  if (is_same && (version != 0 || !fresh)) {
    memory_.put(name, std::move(record));
    return *known;
  }
  object.number = new_number();
  keep(name, record_of(object));
  return object;
}

// Not what another process has remembered meanwhile.
void CachedDriver::forget(std::string_view key, const KnownObject& object) {
  const std::string name = name_of(key);
  const auto lock = locks_.lock(name);
  ++writes_;
  memory_.erase(name);
  if (!disk_) return;
  const CachedBytes record = disk_->find(name);
  const std::optional<KnownObject> known = record ? object_of(*record) : std::nullopt;
  if (!known || known->number == object.number) disk_->erase(name);
}

bool CachedDriver::is_written(const std::string& name) {
  const ForkLock lock(written_mutex_);
  return written_.contains(name);
}

// From here until its end nobody remembers the object: one that read it before the write and kept
// it during the write would leave a copy that is no longer true, should the process die now.
void CachedDriver::begin_write(std::string_view key) {
  const std::string name = name_of(key);
  {
    const ForkLock lock(written_mutex_);
    ++written_[name];
  }
  const auto lock = locks_.lock(name);
  ++writes_;
  memory_.erase(name);
  if (disk_) disk_->erase(name);
}

void CachedDriver::end_write(std::string_view key) {
  ++writes_;
  const ForkLock lock(written_mutex_);
  const auto found = written_.find(name_of(key));
  if (found != written_.end() && --found->second == 0) written_.erase(found);
}

bool CachedDriver::serve_whole(GetRequest& request) {
  const std::optional<KnownObject> object = find_object(request.key);
  if (!object) return false;
  check_object_nbytes(request.key, object->size, request.max_nbytes);
  Buffer& into = *request.into;
  into.clear();
  for (std::uint64_t at = 0; at < object->size; at += block_nbytes_) {
    const std::uint64_t block = at / block_nbytes_;
    const CachedBytes bytes = find(name_of(request.key, *object, block), nbytes_of(*object, block));
    if (!bytes) return false;
    if (at == 0) {
      into.resize(object->size);
      into.clear();
    }
    into.append(*bytes);
  }
  return true;
}

void CachedDriver::keep_whole(std::string_view key,
                              ConstBytes bytes,
                              std::uint64_t version,
                              long writes) {
  misses_ += static_cast<std::int64_t>((bytes.size() + block_nbytes_ - 1) / block_nbytes_);
  fetched_nbytes_ += static_cast<std::int64_t>(bytes.size());
  const KnownObject object = remember(key, bytes.size(), version, writes, true);
  if (object.number == 0) return;
  for (std::uint64_t block = 0; !bytes.empty(); ++block) {
    const std::size_t nbytes = std::min<std::uint64_t>(block_nbytes_, bytes.size());
    auto copy = std::make_shared<Buffer>();
    copy->assign(bytes.first(nbytes));
    keep(name_of(key, object, block), std::move(copy));
    bytes = bytes.subspan(nbytes);
  }
}

// Opened, so that its version is known: that costs a local store nothing.
void CachedDriver::fetch_whole_local(GetRequest& request) {
  for (int attempt = 1;; ++attempt) {
    const long writes = writes_;
    const std::unique_ptr<ObjectReader> behind = store_->open(request.key);
    request.found = behind != nullptr;
    if (!behind) return;
    check_object_nbytes(request.key, behind->size(), request.max_nbytes);
    request.into->resize(checked_cast<std::size_t>(behind->size(), "object size"));
    behind->read(0, request.into->bytes());
    if (behind->unchanged()) {
      return keep_whole(request.key, *request.into, behind->version(), writes);
    }
    if (attempt == kAttempts) throw_changed(url() + ": " + request.key);
  }
}

void CachedDriver::fetch_whole(GetRequest& request) {
  if (store_->local()) {
    try {
      return fetch_whole_local(request);
    } catch (const Error& error) {
      if (error.os_error() != EISDIR) throw;
    }
    request.found = store_->get_within(request.key, *request.into, request.max_nbytes);
    return;
  }
  const long writes = writes_;
  request.found = store_->get_within(request.key, *request.into, request.max_nbytes);
  if (request.found) keep_whole(request.key, *request.into, 0, writes);
}

bool CachedDriver::get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) {
  GetRequest request{std::string(key), &into, false, nullptr, max_nbytes};
  get_many({&request, 1});
  if (request.error) std::rethrow_exception(request.error);
  return request.found;
}

void CachedDriver::get_many(std::span<GetRequest> requests) {
  const auto at = [](GetRequest& request, auto body) {
    request.error = nullptr;
    try {
      body();
    } catch (...) {
      request.found = false;
      request.error = std::current_exception();
    }
  };
  Flights::Claim claim(flights_);
  std::vector<GetRequest*> mine, others;
  for (GetRequest& request : requests) {
    at(request, [&] {
      request.found = serve_whole(request);
      if (!request.found) (claim.add(name_of(request.key)) ? mine : others).push_back(&request);
    });
  }
  if (store_->local() || mine.size() == 1) {
    for (GetRequest* request : mine) at(*request, [&] { fetch_whole(*request); });
  } else if (!mine.empty()) {
    std::vector<GetRequest> asked;
    for (const GetRequest* request : mine)
      asked.push_back({request->key, request->into, false, nullptr, request->max_nbytes});
    const long writes = writes_;
    store_->get_many(asked);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      mine[i]->found = asked[i].found;
      mine[i]->error = asked[i].error;
      if (asked[i].found) keep_whole(asked[i].key, *asked[i].into, 0, writes);
    }
  }
  claim.release();
  for (GetRequest* request : others) {
    at(*request, [&] {
      flights_.wait(name_of(request->key));
      request->found = serve_whole(*request);
      if (!request->found) fetch_whole(*request);
    });
  }
}

std::unique_ptr<ObjectReader> CachedDriver::open(std::string_view key) {
  std::optional<Source> source;
  if (const auto object = find_object(key)) {
    source = Source{*object, nullptr};
  } else {
    source = open_now(key);
  }
  if (!source) return nullptr;
  return std::make_unique<CachedReader>(shared_from_this(), std::string(key), *std::move(source));
}

std::optional<Source> CachedDriver::open_now(std::string_view key) {
  const long writes = writes_;
  std::shared_ptr<const ObjectReader> behind = store_->open(key);
  if (!behind) return std::nullopt;
  const KnownObject object = remember(key, behind->size(), behind->version(), writes, false);
  return Source{object, std::move(behind)};
}

std::vector<Block> CachedDriver::wanted_blocks(std::string_view key,
                                               const KnownObject& object,
                                               std::span<const RangeRead> reads) {
  std::vector<Block> blocks;
  for (const auto& [offset, dst] : reads) {
    if (dst.empty()) continue;
    const std::uint64_t last = (offset + dst.size() - 1) / block_nbytes_;
    for (std::uint64_t i = offset / block_nbytes_; i <= last; ++i) {
      if (blocks.empty() || blocks.back().index != i) blocks.push_back({i});
    }
  }
  std::ranges::sort(blocks, {}, &Block::index);
  const auto [end, all] = std::ranges::unique(blocks, {}, &Block::index);
  blocks.erase(end, all);
  for (Block& block : blocks) {
    block.name = name_of(key, object, block.index);
    if (object.number != 0) block.bytes = find(block.name, nbytes_of(object, block.index));
  }
  return blocks;
}

void CachedDriver::read(const std::string& key, Source& source, std::span<const RangeRead> reads) {
  const KnownObject& object = source.object;
  std::vector<Block> blocks = wanted_blocks(key, object, reads);
  const auto blocks_of = [&](const RangeRead& read) {
    const auto first =
        std::ranges::lower_bound(blocks, read.offset / block_nbytes_, {}, &Block::index);
    const std::uint64_t last = (read.offset + read.dst.size() - 1) / block_nbytes_;
    return std::span(&*first, last - first->index + 1);
  };
  const auto missing =
      std::ranges::count_if(blocks, [](const Block& block) { return block.bytes == nullptr; });
  const bool again = object.version == 0 && missing > 0 && std::ssize(blocks) > missing;
  if (again) {
    for (Block& block : blocks) block.before = std::exchange(block.bytes, nullptr);
  }

  Flights::Claim claim(flights_);
  std::vector<Block*> mine, others;
  for (Block& block : blocks) {
    if (block.bytes) continue;
    const bool alone = again || object.number == 0;
    (alone || claim.add(block.name) ? mine : others).push_back(&block);
  }
  fetch(key, source, mine);
  claim.release();
  mine.clear();
  for (Block* block : others) {
    flights_.wait(block->name);
    block->bytes = find(block->name, nbytes_of(object, block->index));
    if (!block->bytes) mine.push_back(block);
  }
  fetch(key, source, mine);

  for (const auto& [offset, dst] : reads) {
    if (dst.empty()) continue;
    const std::uint64_t end = offset + dst.size();
    for (const Block& block : blocks_of({offset, dst})) {
      const std::uint64_t at = block.index * block_nbytes_;
      const std::uint64_t from = std::max(at, offset), to = std::min(at + block.bytes->size(), end);
      std::memcpy(dst.data() + (from - offset), block.bytes->data() + (from - at), to - from);
    }
  }
}

// Neighbours are one range, and all ranges are asked for at once.
void CachedDriver::fetch(const std::string& key, Source& source, std::span<Block* const> blocks) {
  if (blocks.empty()) return;
  const KnownObject& object = source.object;
  const auto changed = [&] {
    forget(key, object);
    throw_changed(url() + ": " + key);
  };
  if (!source.behind) {
    source.behind = store_->open(key);
    if (!source.behind) {
      forget(key, object);
      throw_removed(url(), key);
    }
    if (source.behind->size() != object.size || source.behind->version() != object.version) {
      source.behind = nullptr;
      changed();
    }
  }

  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<MutableBytes> places;
  std::vector<RangeRead> runs;
  std::vector<std::size_t> first_of_run;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::uint64_t nbytes = nbytes_of(object, blocks[i]->index);
    buffers.push_back(std::make_shared<Buffer>(nbytes));
    places.push_back(buffers.back()->bytes());
    fetched_nbytes_ += static_cast<std::int64_t>(nbytes);
    if (i > 0 && blocks[i]->index == blocks[i - 1]->index + 1) continue;
    runs.push_back({blocks[i]->index * block_nbytes_, {}});
    first_of_run.push_back(i);
  }
  misses_ += static_cast<std::int64_t>(blocks.size());
  try {
    if (runs.size() == 1) {
      source.behind->read_scattered(runs[0].offset, places);
    } else {
      read_runs(*source.behind, runs, first_of_run, places);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) forget(key, object);
    throw;
  }

  bool is_same = source.behind->unchanged();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const CachedBytes& before = blocks[i]->before;
    is_same = is_same && (!before || std::ranges::equal(before->bytes(), places[i]));
  }
  if (!is_same) changed();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i]->bytes = buffers[i];
    if (object.number != 0) keep(blocks[i]->name, std::move(buffers[i]));
  }
}

// Forgets the objects before they are written, as nobody may be left to do it after.
template <typename Write>
void CachedDriver::change(std::span<const std::string> keys, Write write) {
  std::size_t begun = 0;
  std::exception_ptr error;
  try {
    for (; begun < keys.size(); ++begun) begin_write(keys[begun]);
    write();
  } catch (...) {
    error = std::current_exception();
  }
  for (const std::string& key : keys.first(begun)) end_write(key);
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
