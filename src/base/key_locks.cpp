#include "base/key_locks.h"

#include <functional>
#include <memory>

#include "base/thread_pool.h"

namespace headrace {

KeyLocks::KeyLocks() : stripes_(new Stripes{fork_generation()}) {}

KeyLocks::~KeyLocks() {
  std::unique_ptr<Stripes> stripes(stripes_.load());
  // A thread that the child lacks may hold some of the parent's.
  if (stripes->generation != fork_generation()) static_cast<void>(stripes.release());
}

std::unique_lock<std::mutex> KeyLocks::lock(std::string_view key) {
  Stripes* stripes = stripes_.load();
  if (stripes->generation != fork_generation()) {
    auto made = std::make_unique<Stripes>(fork_generation());
    if (stripes_.compare_exchange_strong(stripes, made.get())) stripes = made.release();
  }
  return std::unique_lock(
      stripes->mutexes[std::hash<std::string_view>()(key) % stripes->mutexes.size()]);
}

}  // namespace headrace
