#include "base/key_locks.h"

#include <chrono>

#include "base/thread_pool.h"

namespace headrace {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);

}  // namespace

KeyLocks::Lock::Lock(Shard& shard, Node& node)
    : shard_(&shard), node_(&node), generation_(fork_generation()) {}

KeyLocks::Lock::~Lock() {
  // In a child of fork the table is the parent's, whose threads may have been changing it.
  if (!node_ || generation_ != fork_generation()) return;
  const std::lock_guard guard(shard_->mutex);
  Entry& entry = node_->second;
  entry.held = false;
  if (--entry.users == 0)
    shard_->entries.erase(shard_->entries.find(node_->first));
  else
    entry.freed.notify_one();
}

KeyLocks::Lock KeyLocks::lock(std::string_view key, const std::function<void()>& poll) {
  auto& shards = shards_.get();
  const std::size_t hash = std::hash<std::string_view>()(key);
  Shard& shard = shards[(hash >> 40) % shards.size()];  // the map uses the low bits
  std::unique_lock guard(shard.mutex);
  auto at = shard.entries.find(key);
  if (at == shard.entries.end()) at = shard.entries.try_emplace(std::string(key)).first;
  Entry& entry = at->second;
  ++entry.users;
  while (entry.held) {
    if (!poll) {
      entry.freed.wait(guard);
      continue;
    }
    if (entry.freed.wait_for(guard, kPollInterval) == std::cv_status::no_timeout) continue;
    guard.unlock();
    try {
      poll();
    } catch (...) {
      guard.lock();
      if (--entry.users == 0)
        shard.entries.erase(shard.entries.find(key));
      else if (!entry.held)
        entry.freed.notify_one();  // it may have been this one that was told
      throw;
    }
    guard.lock();
  }
  entry.held = true;
  return Lock(shard, *at);
}

}  // namespace headrace
