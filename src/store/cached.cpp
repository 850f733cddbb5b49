// What a cached store knows of its objects, whole objects, and writes.

#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "base/checked.h"
#include "headrace/cached_store.h"
#include "headrace/error.h"
#include "store/async_driver.h"
#include "store/cached_driver.h"

namespace headrace {

namespace {

// URLs do not say by which server a bucket is reached, nor what stands behind a '?', nor what is in
// a file of references, which may be made anew.
std::string name_of_copies(StoreDriver& store) {
  const std::string url = store.url();
  const std::string name = store.lasting_name();
  return name == url ? url : url + " " + name;
}

}  // namespace

CachedDriver::CachedDriver(std::shared_ptr<StoreDriver> store, const CacheOptions& options)
    : store_(std::move(store)),
      options_(options),
      block_nbytes_(options.block_nbytes),
      copies_(options, name_of_copies(*store_)) {
  if (AsyncReads* const source = store_->async_reads())
    reads_ = std::make_unique<CachedReads>(copies_, *source, url());
}

// Null: neither in memory nor on disk.
CachedBytes CachedDriver::find(const std::string& name, std::uint64_t nbytes) {
  if (CachedBytes bytes = copies_.find_in_memory(name, nbytes)) {
    copies_.count_hits(1, 0);
    return bytes;
  }
  CachedBytes bytes = copies_.find_on_disk(name, nbytes);
  if (bytes) copies_.count_hits(0, 1);
  return bytes;
}

bool CachedDriver::serve_whole(GetRequest& request) {
  const std::optional<KnownObject> object = copies_.find_object(request.key);
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
  copies_.count_misses(
      static_cast<std::int64_t>((bytes.size() + block_nbytes_ - 1) / block_nbytes_), bytes.size());
  const KnownObject object = copies_.remember(key, {bytes.size(), version}, writes, true);
  if (object.number == 0) return;
  for (std::uint64_t block = 0; !bytes.empty(); ++block) {
    const std::size_t nbytes = std::min<std::uint64_t>(block_nbytes_, bytes.size());
    auto copy = std::make_shared<Buffer>();
    copy->assign(bytes.first(nbytes));
    copies_.keep(name_of(key, object, block), std::move(copy));
    bytes = bytes.subspan(nbytes);
  }
}

// Opened, so that its version is known: that costs a local store nothing.
void CachedDriver::fetch_whole_local(GetRequest& request) {
  for (int attempt = 1;; ++attempt) {
    const long writes = copies_.writes();
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
  if (store_->local()) return fetch_whole_local(request);
  const long writes = copies_.writes();
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
  if (reads_) return get_and_wait(*reads_, requests);
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
      if (!request.found)
        (claim.add(copies_.name_of(request.key)) ? mine : others).push_back(&request);
    });
  }
  if (store_->local() || mine.size() == 1) {
    for (GetRequest* request : mine) at(*request, [&] { fetch_whole(*request); });
  } else if (!mine.empty()) {
    std::vector<GetRequest> asked;
    for (const GetRequest* request : mine)
      asked.push_back({request->key, request->into, false, nullptr, request->max_nbytes});
    const long writes = copies_.writes();
    store_->get_many(asked);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      mine[i]->found = asked[i].found;
      mine[i]->error = asked[i].error;
      if (asked[i].found) keep_whole(asked[i].key, *asked[i].into, 0, writes);
    }
  }
  claim.release();
  for (GetRequest* request : others) {
    flights_.wait(copies_.name_of(request->key));
    at(*request, [&] {
      request->found = serve_whole(*request);
      if (!request->found) fetch_whole(*request);
    });
  }
}

std::unique_ptr<ObjectReader> CachedDriver::open(std::string_view key) {
  std::optional<Source> source;
  const auto object = copies_.find_object(key);
  if (object && object->size != KnownObject::kNotTold) {
    source = Source{*object, nullptr};
  } else {
    source = open_now(key);
  }
  if (!source) return nullptr;
  return make_cached_reader(shared_from_this(), std::string(key), *std::move(source));
}

std::optional<Source> CachedDriver::open_now(std::string_view key) {
  const long writes = copies_.writes();
  std::shared_ptr<const ObjectReader> behind = store_->open(key);
  if (!behind) return std::nullopt;
  KnownObject found{behind->size(), behind->version()};
  if (reads_) found.tag = behind->version_text();
  const KnownObject object = copies_.remember(key, std::move(found), writes, false);
  return Source{object, reads_ ? nullptr : std::move(behind)};
}

// Forgets the objects before they are written, as nobody may be left to do it after.
template <typename Write>
void CachedDriver::change(std::span<const std::string> keys, Write write) {
  std::size_t begun = 0;
  std::exception_ptr error;
  try {
    for (; begun < keys.size(); ++begun) copies_.begin_write(keys[begun]);
    write();
  } catch (...) {
    error = std::current_exception();
  }
  for (const std::string& key : keys.first(begun)) copies_.end_write(key);
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

std::string CachedDriver::set_if(std::string_view key,
                                 std::span<const ConstBytes> parts,
                                 const WriteCondition& condition) {
  const std::string keys[] = {std::string(key)};
  std::string version;
  change(keys, [&] { version = store_->set_if(key, parts, condition); });
  return version;
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
