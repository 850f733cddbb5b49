#pragma once

// std::mutex, std::lock_guard and std::condition_variable with annotations: the standard library's
// have none, and what they guard could not be checked.

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
