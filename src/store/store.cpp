#include "store/store.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <random>
#include <set>
#include <string>

#include "base/checked.h"
#include "base/thread_pool.h"
#include "headrace/error.h"
#include "store/left_out.h"

namespace headrace {

namespace {

std::atomic<DroppedArchiveHandler> g_dropped_archive = nullptr;

template <typename Bytes>
std::uint64_t sum_of_sizes(std::span<const Bytes> parts) {
  std::uint64_t total = 0;
  for (Bytes part : parts) total = checked_add<std::uint64_t>(total, part.size(), "object size");
  return total;
}

}  // namespace

const char* key_fault(std::string_view key) {
  if (key.empty()) return "is empty";
  std::size_t segment = 0;
  for (std::size_t i = 0; i <= key.size(); ++i) {
    if (i < key.size() && key[i] != '/') {
      if (key[i] == '\0') return "holds a NUL";
      if (key[i] == '\\') return "holds a backslash";
      continue;
    }
    std::string_view name = key.substr(segment, i - segment);
    if (name.empty()) return "has an empty segment (a slash at an end, or two in a row)";
    if (name == "." || name == "..") return "has a \".\" or \"..\" segment";
    segment = i + 1;
  }
  return nullptr;
}

void check_key(std::string_view key) {
  const char* fault = key_fault(key);
  if (fault == nullptr) return;
  throw Error(ErrorCode::invalid_argument, "key \"" + std::string(key) + "\": " + fault);
}

bool names_metadata(std::string_view key) {
  const std::string_view name = key.substr(key.rfind('/') + 1);  // npos + 1 is 0
  return std::ranges::find(kMetadataNames, name) != kMetadataNames.end();
}

void on_dropped_archive(DroppedArchiveHandler handler) { g_dropped_archive = handler; }

void tell_dropped_archive(const std::string& url) noexcept {
  if (const DroppedArchiveHandler handler = g_dropped_archive) handler(url);
}

std::string_view check_prefix(std::string_view prefix) {
  if (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (!prefix.empty()) check_key(prefix);
  return prefix;
}

ObjectFile ObjectReader::open_direct() const {
  throw Error(ErrorCode::unsupported, "the object is no file of its own");
}

void ObjectReader::read_ranges(std::span<const RangeRead> reads) const {
  for (const RangeRead& each : reads) read(each.offset, each.dst);
}

void ObjectReader::read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const {
  for (MutableBytes dst : dsts) {
    read(offset, dst);
    offset += dst.size();
  }
}

void StoreDriver::set_parts(std::string_view key, std::span<const ConstBytes> parts) {
  Buffer object;
  object.resize(checked_cast<std::size_t>(total_size(parts), "object size"));
  object.clear();
  for (ConstBytes part : parts) object.append(part);
  set(key, object.bytes());
}

std::string StoreDriver::set_if(std::string_view key,
                                std::span<const ConstBytes> parts,
                                const WriteCondition& condition) {
  if (condition.kind != WriteCondition::Kind::none) throw_no_condition(url(), condition);
  set_parts(key, parts);
  return {};
}

std::string StoreDriver::identity(std::string_view prefix) {
  return "driver:" + std::to_string(reinterpret_cast<std::uintptr_t>(this)) + '/' +
         std::string(prefix);
}

std::string new_store_name() {
  // Drawing a number takes longer than making a store. Forks, which have the same, are told apart
  // by name_within_process().
  static const std::string of_process = [] {
    std::random_device random;
    const std::uint64_t high = random();
    return std::string(kUnnamed) + std::to_string(high << 32 | random()) + '-';
  }();
  static std::atomic<std::uint64_t> n{0};
  return of_process + std::to_string(n++);
}

std::string name_within_process(const std::string& name) {
  return name + '@' + std::to_string(::getpid());
}

LockAttempt StoreDriver::try_lock(std::string_view, MissingFolder) { return {}; }

std::vector<StoredName> StoreDriver::list_names(std::string_view prefix) {
  std::vector<StoredName> names;
  for (std::string& key : list(prefix)) names.push_back({std::move(key)});
  return names;
}

void StoreDriver::erase_names(std::span<const StoredName> names, std::string_view) {
  for (const StoredName& name : names) erase(name.key);
}

std::vector<ObjectSize> StoreDriver::list_sizes(std::string_view prefix) {
  std::vector<std::string> keys = list(prefix);
  std::vector<std::optional<ObjectSize>> objects(keys.size());
  parallel_for(keys.size(), [&](std::size_t i) {
    if (const auto reader = open(keys[i]))
      objects[i] = {keys[i], reader->size(), reader->written()};
  });
  // What is not found was removed meanwhile. What is listed nevertheless stays in the list, of no
  // bytes: who reads it is told that it is missing.
  std::set<std::string, std::less<>> listed;
  if (std::ranges::any_of(objects, [](const auto& object) { return !object; }))
    for (std::string& key : list(prefix)) listed.insert(std::move(key));
  std::vector<ObjectSize> found;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (objects[i]) {
      found.push_back(std::move(*objects[i]));
    } else if (listed.contains(keys[i])) {
      found.push_back({std::move(keys[i])});
    }
  }
  return found;
}

void StoreDriver::expect(std::vector<std::string>, const Extent&) {}

bool StoreDriver::get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) {
  if (!get(key, into)) return false;
  check_object_nbytes(key, into.size(), max_nbytes);
  return true;
}

void StoreDriver::get_many(std::span<GetRequest> requests) {
  for (GetRequest& request : requests) {
    request.found = false;
    request.error = nullptr;
    try {
      request.found = get_within(request.key, *request.into, request.max_nbytes);
    } catch (...) {
      request.error = std::current_exception();
    }
  }
}

std::optional<WrittenAt::Time> written_time(std::int64_t seconds, std::int64_t nanoseconds) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  std::int64_t since = 0;
  if (__builtin_mul_overflow(seconds, kSecond, &since) ||
      __builtin_add_overflow(since, nanoseconds, &since)) {
    return std::nullopt;
  }
  return WrittenAt::Time(std::chrono::nanoseconds(since));
}

void check_object_range(std::string_view object,
                        std::uint64_t size,
                        std::uint64_t offset,
                        std::uint64_t nbytes) {
  if (offset <= size && nbytes <= size - offset) return;
  throw Error(ErrorCode::corrupt,
              std::string(object) + ": wanted " + std::to_string(nbytes) + " bytes at offset " +
                  std::to_string(offset) + ", the object has " + std::to_string(size));
}

void check_object_nbytes(std::string_view object, std::uint64_t nbytes, std::uint64_t max_nbytes) {
  if (nbytes <= max_nbytes) return;
  throw Error(ErrorCode::corrupt,
              std::string(object) + ": has " + std::to_string(nbytes) +
                  " bytes, and what it is to be has at most " + std::to_string(max_nbytes),
              EFBIG);
}

bool is_too_large(const Error& error) {
  return error.code() == ErrorCode::corrupt && error.os_error() == EFBIG;
}

void throw_changed(std::string_view object) {
  throw Error(
      ErrorCode::io,
      std::string(object) +
          " has changed in the store while it was read; to read it anew gives what is there",
      ESTALE);
}

bool is_changed(const Error& error) {
  return error.code() == ErrorCode::io && error.os_error() == ESTALE;
}

std::uint64_t total_size(std::span<const MutableBytes> parts) { return sum_of_sizes(parts); }
std::uint64_t total_size(std::span<const ConstBytes> parts) { return sum_of_sizes(parts); }

void throw_in_doubt(std::string_view object) {
  throw Error(ErrorCode::io,
              std::string(object) +
                  ": the answer to a write was lost, and another writer was there meanwhile: it is "
                  "not known whether this write came before it or was not made at all",
              EALREADY);
}

bool is_in_doubt(const Error& error) {
  return error.code() == ErrorCode::io && error.os_error() == EALREADY;
}

void throw_exists(std::string_view object) {
  throw Error(ErrorCode::conflict, std::string(object) + ": is there already");
}

void throw_no_condition(std::string_view url, const WriteCondition& condition) {
  throw Error(ErrorCode::unsupported,
              std::string(url) +
                  (condition.kind == WriteCondition::Kind::missing
                       ? ": does not tell whether an object is new when it is written"
                       : ": does not tell whether an object was replaced when it is written"));
}

void throw_read_only(std::string_view url) {
  throw Error(ErrorCode::permission_denied, std::string(url) + " is open for reading only");
}

std::string Store::url() const { return driver_->url(); }
bool Store::across_network() const { return driver_->async_reads() != nullptr; }

bool Store::read_only() const { return driver_->read_only(); }
void Store::close() { driver_->close(); }
void Store::discard() { driver_->discard(); }
void Store::sync() const { driver_->sync(); }

std::optional<StoredObject> Store::open(std::string_view key) const {
  std::shared_ptr<const ObjectReader> reader = driver_->open(key);
  if (!reader) return std::nullopt;
  return StoredObject(std::move(reader));
}

bool Store::exists(std::string_view key) const { return driver_->exists(key); }
void Store::set(std::string_view key, ConstBytes bytes) const { driver_->set(key, bytes); }
void Store::set_new(std::string_view key, ConstBytes bytes) const {
  driver_->set_if(key, {&bytes, 1}, WriteCondition::if_missing());
}
void Store::erase(std::string_view key) const { driver_->erase(key); }
void Store::erase_prefix(std::string_view prefix) const { driver_->erase_prefix(prefix); }

std::string Store::identity(std::string_view prefix) const {
  return driver_->identity(check_prefix(prefix));
}

std::vector<std::string> Store::list(std::string_view prefix) const {
  return driver_->list(prefix);
}

std::vector<std::string> Store::list_dir(std::string_view prefix) const {
  std::vector<std::string> names;
  for (DirEntry& entry : driver_->list_dir(prefix)) names.push_back(std::move(entry.name));
  return names;
}

std::vector<ObjectSize> Store::list_sizes(std::string_view prefix) const {
  return driver_->list_sizes(prefix);
}

std::vector<std::string> Store::list_dir(std::string_view prefix, LeftOut& left_out) const {
  const LeftOutScope scope(left_out);
  return list_dir(prefix);
}

std::vector<ObjectSize> Store::list_sizes(std::string_view prefix, LeftOut& left_out) const {
  const LeftOutScope scope(left_out);
  return list_sizes(prefix);
}

std::uint64_t StoredObject::size() const { return reader_->size(); }

void StoredObject::read(std::uint64_t offset, MutableBytes dst) const {
  reader_->read(offset, dst);
}

}  // namespace headrace
