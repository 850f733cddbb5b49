#pragma once

// Tasks of the pool (base/thread_pool.h) that wait for tasks of the pool.

#include <functional>

namespace headrace {

// run_async of a task that `key` names to who waits for it.
void run_task(const void* key, std::function<void()> task);

// A wait for the task of that name. On a thread inside a task another one takes what is left while
// this lives, the task that is waited for first. EAGAIN where no thread can be had for it. On other
// threads it is nothing.
class TaskWait {
 public:
  explicit TaskWait(const void* key);
  ~TaskWait();
  TaskWait(const TaskWait&) = delete;
  TaskWait& operator=(const TaskWait&) = delete;

 private:
  const bool counts_;
};

}  // namespace headrace
