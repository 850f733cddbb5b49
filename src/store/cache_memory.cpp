#include "store/cache_memory.h"

#include <utility>

namespace headrace {
namespace {

// With what an entry takes beside its bytes.
std::size_t cost_of(const std::string& name, const CachedBytes& bytes) {
  constexpr std::size_t kEntry = 192;
  return bytes->size() + 2 * name.size() + kEntry;
}

}  // namespace

CachedBytes MemoryCache::find(const std::string& name) {
  const ForkLock lock(mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->bytes;
}

void MemoryCache::put(const std::string& name, CachedBytes bytes) {
  const std::size_t cost = cost_of(name, bytes);
  if (cost > limit_) return;
  Entries added{{name, std::move(bytes)}}, gone;  // freed after the lock, which is a leaf
  const ForkLock lock(mutex_);
  if (const auto known = by_name_.find(name); known != by_name_.end())
    take_out(known->second, gone);
  while (nbytes_ + cost > limit_) take_out(std::prev(entries_.end()), gone);
  nbytes_ += cost;
  entries_.splice(entries_.begin(), added);
  by_name_.emplace(name, entries_.begin());
}

void MemoryCache::erase(const std::string& name) {
  Entries gone;
  const ForkLock lock(mutex_);
  if (const auto known = by_name_.find(name); known != by_name_.end())
    take_out(known->second, gone);
}

std::size_t MemoryCache::nbytes() const {
  const ForkLock lock(mutex_);
  return nbytes_;
}

void MemoryCache::take_out(Entries::iterator entry, Entries& out) {
  nbytes_ -= cost_of(entry->name, entry->bytes);
  by_name_.erase(entry->name);
  out.splice(out.begin(), entries_, entry);
}

}  // namespace headrace
