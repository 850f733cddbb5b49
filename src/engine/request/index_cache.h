#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/fork_mutex.h"
#include "codec/shard_index.h"

namespace headrace {

// Shard indices by place and version of the object they were read from, least recently used first
// out when together they pass a bound.
class IndexCache {
 public:
  // An index, and of which version of its object.
  struct Versioned {
    std::string version;
    std::shared_ptr<const ShardIndex> index;
  };
  // Whatever version was put there, if it has a text: who reads the shard by it learns whether it
  // still is that. Null index: there is none.
  Versioned find_any(const std::string& place);

  // Null when there is none of that version.
  std::shared_ptr<const ShardIndex> find(const std::string& place, std::uint64_t version);
  void put(const std::string& place,
           std::uint64_t version,
           std::shared_ptr<const ShardIndex> index,
           std::string version_text = {});

 private:
  struct Entry {
    std::string place;
    std::uint64_t version;
    std::string version_text;  // what a store across a network calls it; empty: by number only
    std::shared_ptr<const ShardIndex> index;
  };
  ForkMutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_place_ GUARDED_BY(mutex_);
  std::size_t held_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
