#pragma once

#include "base/mutex.h"

namespace headrace {

// A mutex that a fork finds unlocked: the forking thread takes every ForkMutex before and releases
// them after, in parent and child, so the child never inherits one held by a thread it lacks.
// LEAF LOCK: hold at most one, call nothing that could take another or fork while holding it.
class CAPABILITY("mutex") ForkMutex : public Mutex {
 public:
  ForkMutex();
  ~ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

 private:
  friend struct ForkMutexList;  // fork_mutex.cpp
  ForkMutex* previous_ = nullptr;
  ForkMutex* next_ = nullptr;
};

using ForkLock = ScopedLock<ForkMutex>;

}  // namespace headrace
