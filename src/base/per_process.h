#pragma once

#include <atomic>
#include <memory>

#include "base/thread_pool.h"

namespace headrace {

// One T a process: a child of fork makes its own and leaves its parent's as it is, which threads
// that it lacks may have been using.
template <class T>
class PerProcess {
 public:
  PerProcess() : current_(new Instance) {}
  ~PerProcess() {
    std::unique_ptr<Instance> instance(current_.load());
    if (instance->generation != fork_generation()) static_cast<void>(instance.release());
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T& get() {
    Instance* instance = current_.load();
    if (instance->generation != fork_generation()) {
      auto made = std::make_unique<Instance>();
      if (current_.compare_exchange_strong(instance, made.get())) instance = made.release();
    }
    return instance->value;
  }

 private:
  struct Instance {
    const unsigned generation = fork_generation();
    T value{};
  };

  std::atomic<Instance*> current_;
};

}  // namespace headrace
