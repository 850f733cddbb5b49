#include "engine/request/index_cache.h"

#include <iterator>
#include <utility>

namespace headrace {
namespace {

constexpr std::size_t kBoundBytes = std::size_t{32} << 20;

std::size_t nbytes_of(const ShardIndex& index) {
  return index.entries.size() * sizeof(index.entries[0]);
}

}  // namespace

std::shared_ptr<const ShardIndex> IndexCache::find(const std::string& place,
                                                   std::uint64_t version) {
  ForkLock lock(mutex_);
  const auto found = by_place_.find(place);
  if (found == by_place_.end() || found->second->version != version) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->index;
}

IndexCache::Versioned IndexCache::find_any(const std::string& place) {
  ForkLock lock(mutex_);
  const auto found = by_place_.find(place);
  if (found == by_place_.end() || found->second->version_text.empty()) return {};
  entries_.splice(entries_.begin(), entries_, found->second);
  return {found->second->version_text, found->second->index};
}

void IndexCache::put(const std::string& place,
                     std::uint64_t version,
                     std::shared_ptr<const ShardIndex> index,
                     std::string version_text) {
  const std::size_t nbytes = nbytes_of(*index);
  std::list<Entry> dropped;  // freed after the lock
  std::list<Entry> added;
  added.push_back({place, version, std::move(version_text), std::move(index)});
  ForkLock lock(mutex_);
  const auto drop = [&](std::list<Entry>::iterator entry) REQUIRES(mutex_) {
    held_bytes_ -= nbytes_of(*entry->index);
    by_place_.erase(entry->place);
    dropped.splice(dropped.end(), entries_, entry);
  };
  if (const auto old = by_place_.find(place); old != by_place_.end()) drop(old->second);
  if (nbytes > kBoundBytes) return;
  while (held_bytes_ + nbytes > kBoundBytes) drop(std::prev(entries_.end()));
  by_place_[place] = added.begin();
  entries_.splice(entries_.begin(), added);
  held_bytes_ += nbytes;
}

}  // namespace headrace
