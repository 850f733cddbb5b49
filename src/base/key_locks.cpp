#include "base/key_locks.h"

#include <chrono>

#include "base/thread_pool.h"

namespace headrace {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);

}  // namespace

KeyLocks::Lock::Lock(Shard& shard, Node& node)
    : shard_(&shard), node_(&node), generation_(fork_generation()) {}

void KeyLocks::Lock::unlock() {
  // In a child of fork the table is the parent's, whose threads may have been changing it.
  if (!node_ || generation_ != fork_generation()) return;
  const MutexLock guard(shard_->mutex);
  Entry& entry = node_->second;
  entry.held = false;
  if (--entry.users == 0)
    shard_->entries.erase(shard_->entries.find(node_->first));
  else
    entry.freed.notify_one();
}

std::optional<KeyLocks::Lock> KeyLocks::try_lock(std::string_view key) {
  Shard& shard = shard_of(key);
  const MutexLock guard(shard.mutex);
  const auto [at, is_new] = shard.entries.try_emplace(std::string(key));
  if (!is_new) return std::nullopt;  // held, or somebody is about to have it
  at->second.users = 1;
  at->second.held = true;
  return Lock(shard, *at);
}

KeyLocks::Shard& KeyLocks::shard_of(std::string_view key) {
  auto& shards = shards_.get();
  const std::size_t hash = std::hash<std::string_view>()(key);
  return shards[(hash >> 40) % shards.size()];  // the map uses the low bits
}

KeyLocks::Lock KeyLocks::lock(std::string_view key, const std::function<void()>& poll) {
  Shard& shard = shard_of(key);
  const MutexLock guard(shard.mutex);
  auto at = shard.entries.find(key);
  if (at == shard.entries.end()) at = shard.entries.try_emplace(std::string(key)).first;
  Entry& entry = at->second;
  ++entry.users;
  while (entry.held) {
    if (!poll) {
      entry.freed.wait(shard.mutex);
      continue;
    }
    if (entry.freed.wait_for(shard.mutex, kPollInterval)) continue;
    try {
      const MutexUnlock free(shard.mutex);
      poll();
    } catch (...) {
      if (--entry.users == 0)
        shard.entries.erase(shard.entries.find(key));
      else if (!entry.held)
        entry.freed.notify_one();  // it may have been this one that was told
      throw;
    }
  }
  entry.held = true;
  return Lock(shard, *at);
}

}  // namespace headrace
