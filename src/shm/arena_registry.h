#pragma once

// The arenas of this process: so that it has each but once, and takes all of them through a fork.

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "shm/arena_state.h"

namespace headrace::shm {

class ArenaRegistry {
 public:
  static ArenaRegistry& get();

  void add(const std::shared_ptr<ArenaState>& state);
  std::shared_ptr<ArenaState> find(const std::array<std::byte, 16>& id);

 private:
  ArenaRegistry();
  // The lock is held from one to the other.
  void before_fork() NO_THREAD_SAFETY_ANALYSIS;
  void after_fork(void (ArenaState::*step)()) NO_THREAD_SAFETY_ANALYSIS;

  Mutex mutex_;
  std::vector<std::weak_ptr<ArenaState>> states_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<ArenaState>> forking_
      GUARDED_BY(mutex_);  // while a fork is on its way
};

}  // namespace headrace::shm
