#pragma once

#include "simt/queue.h"

namespace headrace {

// Waits for a queue when it goes: work is never left behind in memory that the caller may free.
class Drain {
 public:
  explicit Drain(Queue& queue) : queue_(&queue) {}
  ~Drain() {
    try {
      if (queue_) queue_->synchronize();
    } catch (...) {
      // The call ends with its first error, or this one was thrown already.
    }
  }
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;
  // The memory is kept until the work is done.
  void dismiss() { queue_ = nullptr; }

 private:
  Queue* queue_;
};

}  // namespace headrace
