#pragma once

// What one thread makes and others finish behind it, as a write from a device does: it waits for
// the device, they for the store.
//  1. run() calls make() on one thread. What that gives to add() others do, about in that order.
//  2. So many bytes may wait or be under way. Who adds more waits until it is less, or does some
//     of it where others would not soon.
//  3. Behind make() its thread does what is left, as the others do.
//  4. The first error ends it: nothing more is begun, and add() throws.
// Without other threads make()'s does all of it: nobody waits for one that may never come.

#include <cstddef>
#include <deque>
#include <memory>

#include "base/function_ref.h"
#include "base/mutex.h"
#include "engine/request/request.h"

namespace headrace {

class WorkBehind {
 public:
  class Task {
   public:
    virtual ~Task() = default;
    // Once, by any thread.
    virtual void run() = 0;
  };

  WorkBehind(Request& request, std::size_t most_nbytes)
      : request_(request), most_nbytes_(most_nbytes) {}

  // Until all is done, by at most so many threads.
  void run(std::size_t threads, FunctionRef<void()> make);

  // By make(). `nbytes`: what the task holds until it is done.
  void add(std::unique_ptr<Task> task, std::size_t nbytes);
  // By make(): returns when all that was added is done.
  void drain();

 private:
  struct Waiting {
    std::unique_ptr<Task> task;
    std::size_t nbytes;
  };

  void follow(bool makes, FunctionRef<void()> make);
  bool do_next() REQUIRES(mutex_);
  void throw_if_failed() REQUIRES(mutex_);
  void wait_and_check(ConditionVariable& change) REQUIRES(mutex_);

  Request& request_;
  const std::size_t most_nbytes_;

  Mutex mutex_;
  ConditionVariable added_;  // or all is made, or one failed
  ConditionVariable done_;   // what make() waits for
  std::deque<Waiting> waiting_ GUARDED_BY(mutex_);
  std::size_t others_ GUARDED_BY(mutex_) = 0;       // threads beside make()'s
  std::size_t under_way_ GUARDED_BY(mutex_) = 0;    // tasks
  std::size_t held_nbytes_ GUARDED_BY(mutex_) = 0;  // of both
  bool made_ GUARDED_BY(mutex_) = false;
  bool failed_ GUARDED_BY(mutex_) = false;
};

}  // namespace headrace
