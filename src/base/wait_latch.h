#pragma once

#include <cstddef>

#include "base/function_ref.h"
#include "base/mutex.h"

namespace headrace {

// Waits for what others do a number of times. It may be destroyed as soon as wait() returns.
class WaitLatch {
 public:
  explicit WaitLatch(std::size_t wanted) : left_(wanted) {}

  void count_down();
  // When the caller wants it no more (base/interrupt.h), `give_up` is called, which sees to it that
  // what is left is done soon; what the caller's interrupt threw is rethrown then.
  void wait(FunctionRef<void()> give_up);

 private:
  Mutex mutex_;
  ConditionVariable done_;
  std::size_t left_ GUARDED_BY(mutex_);
};

}  // namespace headrace
