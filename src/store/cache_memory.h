#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/buffer.h"
#include "base/fork_mutex.h"

namespace headrace {

using CachedBytes = std::shared_ptr<const Buffer>;

// Bytes by name, within a limit: the least recently used go. Thread-safe.
class MemoryCache {
 public:
  explicit MemoryCache(std::size_t limit_nbytes) : limit_(limit_nbytes) {}

  CachedBytes find(const std::string& name);  // null: not there
  void put(const std::string& name, CachedBytes bytes);
  void erase(const std::string& name);
  std::size_t nbytes() const;

 private:
  struct Entry {
    std::string name;
    CachedBytes bytes;
  };
  using Entries = std::list<Entry>;

  void take_out(Entries::iterator entry, Entries& out) REQUIRES(mutex_);

  const std::size_t limit_;
  mutable ForkMutex mutex_;
  Entries entries_ GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<std::string, Entries::iterator> by_name_ GUARDED_BY(mutex_);
  std::size_t nbytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
