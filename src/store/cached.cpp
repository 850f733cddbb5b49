// What a cached store knows of its objects, whole objects, and writes.

#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <random>
#include <utility>

#include "base/checked.h"
#include "headrace/cached_store.h"
#include "headrace/error.h"
#include "store/cached_driver.h"

namespace headrace {
namespace {

constexpr std::size_t kRecordNbytes = 3 * sizeof(std::uint64_t);

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

// No number is 0.
std::uint64_t new_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random() | 1;
}

}  // namespace

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
  const std::string name = name_of(key);
  if (disk_) {  // another process may have read it while it was written, and noted what was before
    const auto lock = locks_.lock(name);
    disk_->erase(name);
  }
  ++writes_;
  const ForkLock lock(written_mutex_);
  const auto found = written_.find(name);
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
    if (attempt == kReadAttempts) throw_changed(url() + ": " + request.key);
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
  return make_cached_reader(shared_from_this(), std::string(key), *std::move(source));
}

std::optional<Source> CachedDriver::open_now(std::string_view key) {
  const long writes = writes_;
  std::shared_ptr<const ObjectReader> behind = store_->open(key);
  if (!behind) return std::nullopt;
  const KnownObject object = remember(key, behind->size(), behind->version(), writes, false);
  return Source{object, std::move(behind)};
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
