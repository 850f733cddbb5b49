#pragma once

// What a cached store knows of its objects, and the copies of their bytes.
//
// What is known of an object is its size, its version in the store behind, and a number that it was
// given when it was seen first. Its bytes are kept by that number, and a number is of one version:
// once an object is written, or seen to have changed, another number is made, and the bytes of the
// old one are nobody's and go in time. So bytes of two versions never meet.
//
// Of a store that cannot tell versions (version 0) a number is of what had that size. What is
// asked for at once is then all kept or all fetched, and what is fetched once more tells by its
// bytes whether the object is still the same.
//
// Any thread calls any method.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/fork_mutex.h"
#include "base/key_locks.h"
#include "headrace/cached_store.h"
#include "store/cache_disk.h"
#include "store/cache_memory.h"

namespace headrace {

struct KnownObject {
  static constexpr std::uint64_t kNotTold = UINT64_MAX;  // a size

  std::uint64_t size = 0, version = 0;
  std::uint64_t number = 0;  // 0: seen while it was written; nothing of it is kept
  std::string tag{};         // the version as AsyncRead has it, of a store that is asked so
};

class CachedCopies {
 public:
  // `url`: of the store behind.
  CachedCopies(const CacheOptions& options, const std::string& url);

  std::uint64_t block_nbytes() const { return block_nbytes_; }
  bool has_disk() const { return disk_ != nullptr; }

  std::string name_of(std::string_view key) const;
  // Of bytes of an object; those of a whole block, one at the object's end too, go by the block.
  std::string name_of(std::string_view key,
                      const KnownObject& object,
                      std::uint64_t offset,
                      std::uint64_t nbytes) const;
  // Of the last bytes of an object whose size is not known.
  std::string name_of_end(std::string_view key,
                          const KnownObject& object,
                          std::uint64_t nbytes) const;

  static constexpr std::uint64_t kAnySize = UINT64_MAX;
  // Null: not there. Nothing is counted.
  CachedBytes find_in_memory(const std::string& name, std::uint64_t nbytes);
  CachedBytes find_on_disk(const std::string& name, std::uint64_t nbytes);
  void keep(const std::string& name, CachedBytes bytes);

  std::optional<KnownObject> find_object(std::string_view key);
  std::optional<KnownObject> find_object_in_memory(std::string_view key);
  // `found`: number 0. `writes`: their number before the object was looked at. `fresh`: never by a
  // number that is known where versions cannot be told.
  KnownObject remember(std::string_view key, KnownObject found, long writes, bool fresh);
  void forget(std::string_view key, const KnownObject& object);
  // Whether the object was forgotten by this process.
  bool is_forgotten(std::uint64_t number) const;

  // From begin_write() to end_write() nobody remembers the object.
  long writes() const { return writes_; }
  void begin_write(std::string_view key);
  void end_write(std::string_view key);

  void count_hits(std::int64_t memory, std::int64_t disk) {
    memory_hits_ += memory;
    disk_hits_ += disk;
  }
  void count_misses(std::int64_t blocks, std::uint64_t nbytes) {
    misses_ += blocks;
    fetched_nbytes_ += static_cast<std::int64_t>(nbytes);
  }
  CacheStats stats() const;

 private:
  bool is_written(const std::string& name);
  void note_forgotten(std::uint64_t number);

  const std::string name_;
  const std::uint64_t block_nbytes_;
  MemoryCache memory_;
  std::unique_ptr<DiskCache> disk_;  // null: none; not changed later
  // An object is looked up in the folder, remembered and forgotten under its lock; `writes_` says
  // who is about to remember it whether it was forgotten since it was looked at.
  KeyLocks locks_;
  std::atomic<long> writes_{0};
  mutable ForkMutex written_mutex_;
  std::map<std::string, int> written_ GUARDED_BY(written_mutex_);  // by how many writes right now
  std::unordered_set<std::uint64_t> forgotten_ GUARDED_BY(written_mutex_);
  std::atomic<std::int64_t> memory_hits_{0}, disk_hits_{0}, misses_{0}, fetched_nbytes_{0};
};

}  // namespace headrace
