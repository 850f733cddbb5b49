#pragma once

// std::mutex, std::lock_guard and std::condition_variable with annotations: the standard library's
// have none, and what they guard could not be checked. Each call is one call of theirs.
//
// tools/check_locks.py refuses those of the standard library elsewhere, and a mutex of which no
// annotation says what it guards.

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/thread_annotations.h"

namespace headrace {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class ConditionVariable;
  friend class TwoMutexLock;
  std::mutex mutex_;
};

// Holds a mutex in its scope, but between unlock() and lock().
template <class AnyMutex>
class SCOPED_CAPABILITY ScopedLock {
 public:
  explicit ScopedLock(AnyMutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~ScopedLock() RELEASE() {
    if (held_) mutex_.unlock();
  }
  ScopedLock(const ScopedLock&) = delete;
  ScopedLock& operator=(const ScopedLock&) = delete;

  void unlock() RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  void lock() ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  AnyMutex& mutex_;
  bool held_ = true;
};

using MutexLock = ScopedLock<Mutex>;

// Does without a mutex that is held in its scope. An exception, too, finds it held behind the
// scope.
class SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() RELEASE() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// Holds two, whichever of them others take first.
class SCOPED_CAPABILITY TwoMutexLock {
 public:
  TwoMutexLock(Mutex& one, Mutex& other) ACQUIRE(one, other) : lock_(one.mutex_, other.mutex_) {}
  ~TwoMutexLock() RELEASE() {}
  TwoMutexLock(const TwoMutexLock&) = delete;
  TwoMutexLock& operator=(const TwoMutexLock&) = delete;

 private:
  std::scoped_lock<std::mutex, std::mutex> lock_;
};

// Waits may end without a reason: the caller loops over its condition.
class ConditionVariable {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) {
    Adopted lock(mutex);
    condition_.wait(lock.lock);
  }
  // False when `deadline` has passed.
  template <class Clock, class Duration>
  bool wait_until(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& deadline)
      REQUIRES(mutex) {
    Adopted lock(mutex);
    return condition_.wait_until(lock.lock, deadline) == std::cv_status::no_timeout;
  }
  template <class Rep, class Period>
  bool wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& timeout) REQUIRES(mutex) {
    Adopted lock(mutex);
    return condition_.wait_for(lock.lock, timeout) == std::cv_status::no_timeout;
  }
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

 private:
  // What the caller holds stays held.
  struct Adopted {
    explicit Adopted(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Adopted() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable condition_;
};

}  // namespace headrace
