#pragma once

#include <mutex>

#include "base/mutex.h"

namespace headrace {

// A mutex that a fork finds unlocked: the forking thread takes every ForkMutex before and releases
// them after, in parent and child, so the child never inherits one held by a thread it lacks.
// LEAF LOCK: hold at most one, call nothing that could take another or fork while holding it.
class CAPABILITY("mutex") ForkMutex {
 public:
  ForkMutex();
  ~ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend struct ForkMutexList;  // fork_mutex.cpp
  std::mutex mutex_;
  ForkMutex* previous_ = nullptr;
  ForkMutex* next_ = nullptr;
};

using ForkLock = ScopedLock<ForkMutex>;

}  // namespace headrace
