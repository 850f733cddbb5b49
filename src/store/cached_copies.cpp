#include "store/cached_copies.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/bytes.h"
#include "base/checked.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr std::size_t kHeadNbytes = 3 * sizeof(std::uint64_t);
// Of a version as a store tells it; of a longer one nothing is kept.
constexpr std::size_t kMaxTagNbytes = 1024;
// Of the last bytes of an object, which are kept as one.
constexpr std::size_t kMaxEndNbytes = std::size_t{16} << 20;
// Numbers of objects that were forgotten, of which readers may still ask for more.
constexpr std::size_t kMostForgotten = std::size_t{1} << 20;

CachedBytes record_of(const KnownObject& object) {
  auto bytes = std::make_shared<Buffer>(kHeadNbytes);
  std::byte* at = bytes->data();
  for (const std::uint64_t value : {object.size, object.version, object.number}) {
    store_le(at, value);
    at += sizeof value;
  }
  bytes->append(bytes_of(object.tag));
  return bytes;
}

std::optional<KnownObject> object_of(ConstBytes record) {
  if (record.size() < kHeadNbytes || record.size() > kHeadNbytes + kMaxTagNbytes)
    return std::nullopt;
  const auto value = [&](std::size_t i) {
    return load_le<std::uint64_t>(record.data() + i * sizeof(std::uint64_t));
  };
  if (value(2) == 0) return std::nullopt;
  return KnownObject{
      value(0), value(1), value(2), std::string(text_of(record.subspan(kHeadNbytes)))};
}

// No number is 0.
std::uint64_t new_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random() | 1;
}

}  // namespace

CachedCopies::CachedCopies(const CacheOptions& options, const std::string& url)
    : name_(options.name.empty() ? url : options.name),
      block_nbytes_(options.block_nbytes),
      memory_(options.memory_nbytes) {
  if (block_nbytes_ == 0)
    throw Error(ErrorCode::invalid_argument, "[cached_store] blocks of 0 bytes");
  if (options.directory.empty()) return;
  check_apart(options.directory, url);
  disk_ = std::make_unique<DiskCache>(
      options.directory, options.disk_nbytes, std::max(options.block_nbytes, kMaxEndNbytes));
}

std::string CachedCopies::name_of(std::string_view key) const {
  return name_ + '\n' + std::string(key);
}

std::string CachedCopies::name_of(std::string_view key,
                                  const KnownObject& object,
                                  std::uint64_t offset,
                                  std::uint64_t nbytes) const {
  const bool is_block = offset % block_nbytes_ == 0 && offset + nbytes == object.size;
  return name_of(key) + '\n' + std::to_string(object.number) + '\n' + std::to_string(offset) + '+' +
         std::to_string(is_block ? block_nbytes_ : nbytes);
}

std::string CachedCopies::name_of_end(std::string_view key,
                                      const KnownObject& object,
                                      std::uint64_t nbytes) const {
  return name_of(key) + '\n' + std::to_string(object.number) + "\n-" + std::to_string(nbytes);
}

CachedBytes CachedCopies::find_in_memory(const std::string& name, std::uint64_t nbytes) {
  CachedBytes bytes = memory_.find(name);
  return bytes && (nbytes == kAnySize || bytes->size() == nbytes) ? bytes : nullptr;
}

CachedBytes CachedCopies::find_on_disk(const std::string& name, std::uint64_t nbytes) {
  CachedBytes bytes = disk_ ? disk_->find(name) : nullptr;
  if (!bytes || (nbytes != kAnySize && bytes->size() != nbytes)) return nullptr;
  memory_.put(name, bytes);
  return bytes;
}

void CachedCopies::keep(const std::string& name, CachedBytes bytes) {
  if (bytes->size() > std::max<std::uint64_t>(block_nbytes_, kMaxEndNbytes)) return;
  if (disk_) disk_->put(name, *bytes);
  memory_.put(name, std::move(bytes));
}

std::optional<KnownObject> CachedCopies::find_object_in_memory(std::string_view key) {
  const CachedBytes known = memory_.find(name_of(key));
  return known ? object_of(*known) : std::nullopt;
}

std::optional<KnownObject> CachedCopies::find_object(std::string_view key) {
  const std::string name = name_of(key);
  CachedBytes known = memory_.find(name);
  if (!known && disk_) {
    const auto lock = locks_.lock(name);
    known = disk_->find(name);
    if (known) memory_.put(name, known);
  }
  return known ? object_of(*known) : std::nullopt;
}

KnownObject CachedCopies::remember(std::string_view key,
                                   KnownObject found,
                                   long writes,
                                   bool fresh) {
  if (found.tag.size() > kMaxTagNbytes) return found;
  const std::string name = name_of(key);
  const auto lock = locks_.lock(name);
  if (writes != writes_ || is_written(name)) return found;
  CachedBytes record = memory_.find(name);
  if (!record && disk_) record = disk_->find(name);
  std::optional<KnownObject> known = record ? object_of(*record) : std::nullopt;
  const auto fits = [&] {
    return known->version == found.version && known->tag == found.tag &&
           (known->size == found.size || known->size == KnownObject::kNotTold ||
            found.size == KnownObject::kNotTold);
  };
  if (known && fits() && (found.version != 0 || !fresh)) {
    if (known->size == found.size || found.size == KnownObject::kNotTold) {
      memory_.put(name, std::move(record));
      return *known;
    }
    found.number = known->number;  // its size is told now
  } else {
    found.number = new_number();
  }
  keep(name, record_of(found));
  return found;
}

// Not what another process, or another reader, has remembered meanwhile.
void CachedCopies::forget(std::string_view key, const KnownObject& object) {
  const std::string name = name_of(key);
  const auto lock = locks_.lock(name);
  ++writes_;
  note_forgotten(object.number);
  const auto is_it = [&](const CachedBytes& record) {
    const std::optional<KnownObject> known = record ? object_of(*record) : std::nullopt;
    return !known || known->number == object.number;
  };
  if (is_it(memory_.find(name))) memory_.erase(name);
  if (disk_ && is_it(disk_->find(name))) disk_->erase(name);
}

void CachedCopies::note_forgotten(std::uint64_t number) {
  if (number == 0) return;
  const ForkLock lock(written_mutex_);
  if (forgotten_.size() == kMostForgotten) forgotten_.clear();
  forgotten_.insert(number);
}

bool CachedCopies::is_forgotten(std::uint64_t number) const {
  const ForkLock lock(written_mutex_);
  return forgotten_.contains(number);
}

bool CachedCopies::is_written(const std::string& name) {
  const ForkLock lock(written_mutex_);
  return written_.contains(name);
}

// From here until its end nobody remembers the object: one that read it before the write and kept
// it during the write would leave a copy that is no longer true, should the process die now.
void CachedCopies::begin_write(std::string_view key) {
  const std::string name = name_of(key);
  {
    const ForkLock lock(written_mutex_);
    ++written_[name];
  }
  const auto lock = locks_.lock(name);
  ++writes_;
  if (const CachedBytes record = memory_.find(name)) {
    if (const auto known = object_of(*record)) note_forgotten(known->number);
  }
  memory_.erase(name);
  if (disk_) disk_->erase(name);
}

void CachedCopies::end_write(std::string_view key) {
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

CacheStats CachedCopies::stats() const {
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

}  // namespace headrace
