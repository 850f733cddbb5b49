#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "base/per_process.h"

namespace headrace {

// Locks by key, which any thread may release: who holds one keeps nobody from any other, so that
// code of the application may run under it and take others. A child of fork starts with all free.
class KeyLocks {
 private:
  struct Entry {  // under its shard's mutex
    ConditionVariable freed;
    std::size_t users = 0;  // who holds it and who waits for it
    bool held = false;
  };
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct alignas(64) Shard {
    Mutex mutex;
    std::unordered_map<std::string, Entry, Hash, std::equal_to<>> entries GUARDED_BY(mutex);
  };

 public:
  class Lock {
   public:
    Lock() = default;
    Lock(Lock&& other) noexcept { swap(other); }
    Lock& operator=(Lock&& other) noexcept {
      swap(other);
      return *this;
    }
    ~Lock() { unlock(); }

   private:
    friend class KeyLocks;
    using Node = std::pair<const std::string, Entry>;
    Lock(Shard& shard, Node& node);
    void unlock();
    void swap(Lock& other) noexcept {
      std::swap(shard_, other.shard_);
      std::swap(node_, other.node_);
      std::swap(generation_, other.generation_);
    }

    Shard* shard_ = nullptr;
    Node* node_ PT_GUARDED_BY(shard_->mutex) = nullptr;
    unsigned generation_ = 0;
  };

  // Nothing: somebody has it.
  std::optional<Lock> try_lock(std::string_view key);
  // `poll`, when there is one, is called about every 50 ms of waiting; throwing from it gives up.
  Lock lock(std::string_view key, const std::function<void()>& poll = {});

 private:
  Shard& shard_of(std::string_view key);

  PerProcess<std::array<Shard, 64>> shards_;
};

}  // namespace headrace
