#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <string_view>

namespace headrace {

// Locks by key, some keys sharing one: who holds one takes no other. A child of fork starts with
// all free.
class KeyLocks {
 public:
  KeyLocks();
  ~KeyLocks();
  KeyLocks(const KeyLocks&) = delete;
  KeyLocks& operator=(const KeyLocks&) = delete;

  std::unique_lock<std::mutex> lock(std::string_view key);

 private:
  struct Stripes {
    const unsigned generation;  // of the process that they are of
    std::array<std::mutex, 256> mutexes{};
  };

  std::atomic<Stripes*> stripes_;
};

}  // namespace headrace
