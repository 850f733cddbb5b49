#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/fork_mutex.h"
#include "store/cache_folder.h"
#include "store/cache_memory.h"

namespace headrace {

// Bytes by name in a folder, a file each (store/cache_file.h), that processes share. A file has one
// of its name's hash for its own and holds the name, so that a collision is a miss. Files go by the
// time of their last use, which a file's modification time is. Nothing but making one raises:
// what goes wrong is counted, and the bytes are those of the store. Thread-safe.
class DiskCache {
 public:
  // `max_nbytes`: of the bytes that are kept by one name; larger files are damaged.
  DiskCache(const std::string& directory, std::uint64_t limit_nbytes, std::size_t max_nbytes);

  CachedBytes find(const std::string& name);  // null: not there, or damaged
  void put(const std::string& name, ConstBytes bytes);
  // What is kept by the name is not found again, by this process or the next: where its file cannot
  // be erased, all that the folder holds is disowned, and where that fails, too, it is not used.
  void erase(const std::string& name);

  struct Stats {
    std::int64_t damaged_files = 0, failures = 0;  // failures to read and write files
    std::string last_failure{};
  };
  Stats stats() const;

 private:
  CachedBytes load(const std::string& name);
  std::string generation() const;
  void disown() noexcept;
  bool is_time_to_sweep(std::uint64_t added);
  void sweep();
  void note_failure(const std::string& what);

  const std::uint64_t limit_;
  const std::size_t max_nbytes_;
  const CacheFolder folder_;
  std::atomic<bool> usable_{true};
  std::atomic<std::int64_t> until_sweep_{0};  // bytes to be added
  mutable ForkMutex mutex_;
  // Stands in front of every name; another one, and all files are nobody's.
  std::string generation_ GUARDED_BY(mutex_);
  Stats stats_ GUARDED_BY(mutex_);
};

}  // namespace headrace
