#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/per_process.h"

namespace headrace {

// Threads that wait for disks and for stores, so that those that compute do not. They are started
// when there is something to do, at most so many, and end when there was nothing for a while. A
// child of fork starts its own, and what its parent has to do is not the child's.
class IoThreads {
 public:
  explicit IoThreads(std::size_t most) : most_(most) {}
  // Waits for nobody: a thread that is at work ends behind it.
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  // Soon; it must not throw. Throws where there is no thread for it and none can be started: then
  // it will not be run.
  void run(std::function<void()> job);
  std::size_t most() const { return most_; }

 private:
  struct State;
  struct Shared {
    Shared();
    std::shared_ptr<State> state;
  };
  static void work(State& state);

  const std::size_t most_;
  PerProcess<Shared> shared_;
};

}  // namespace headrace
