#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <thread>

#include "base/mutex.h"

namespace headrace::detail {

class DeviceWork;

// The thread that ends queued work of devices: it looks for what is done, calls the callers'
// functions, and lets go of what the work kept, so that nobody who waits runs code of others. It
// takes no turn behind other tasks, and looks by itself now and then: a device that has failed
// tells nobody. One a process, started with the first work; a child of fork has its own.
class Completion {
 public:
  // Throws `io` when no thread can be started.
  static void add(std::shared_ptr<DeviceWork> work);
  // Some work is done. From any thread, those of the driver, too.
  static void wake() noexcept;

  Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

 private:
  using Work = std::list<std::shared_ptr<DeviceWork>>;
  using Clock = std::chrono::steady_clock;

  static Completion& get();
  void take(Work& fresh);
  void run();
  // Returns when the thread is gone, or is in somebody's code for too long; at once on the thread
  // itself.
  void stop();

  Mutex mutex_;
  ConditionVariable changed_;
  Work open_ GUARDED_BY(mutex_);
  bool woken_ GUARDED_BY(mutex_) = false;
  bool running_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_ GUARDED_BY(mutex_);
};

}  // namespace headrace::detail
