#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/fork_mutex.h"
#include "store/cache_memory.h"
#include "store/store.h"

namespace headrace {

// Bytes by name in a folder, a file each, that processes share. A file has one of its name's hash
// for its own and holds the name, so that a collision is a miss:
//
//   "hrcache1"  u32 CRC-32 of what follows  u32 size of the name  name  bytes       (little-endian)
//
// Files go by the time of their last use, which a file's modification time is. Thread-safe.
class DiskCache {
 public:
  DiskCache(const std::string& directory, std::uint64_t limit_nbytes);

  CachedBytes find(const std::string& name);  // null: not there, or damaged
  void put(const std::string& name, ConstBytes bytes);
  void erase(const std::string& name);

  struct Stats {
    std::int64_t damaged_files = 0, failures = 0;  // failures to read and write files
    std::string last_failure{};
  };
  Stats stats() const;

 private:
  CachedBytes load(const std::string& name);
  bool is_time_to_sweep(std::uint64_t added);
  void sweep();
  void note_failure(const std::string& what);

  const std::filesystem::path directory_;
  const std::uint64_t limit_;
  const std::unique_ptr<StoreDriver> files_;
  std::atomic<std::int64_t> until_sweep_{0};  // bytes to be added
  mutable ForkMutex mutex_;
  Stats stats_;
};

}  // namespace headrace
