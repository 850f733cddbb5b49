#pragma once

// One pool a process, made at first use and again in a child after fork. Work is shared, never
// waited for: the caller of parallel_for does what no other thread has taken, so nested calls and a
// pool of zero threads are fine.

#include <cstddef>
#include <functional>

#include "base/function_ref.h"

namespace headrace {

// Calls body(i) for each i in [0, n), from the calling thread and at most max_threads - 1 others.
// An exception stops the hand-out of further indices; once every call that had started is over, the
// one of the lowest index is rethrown here, so that which it is does not hang on the threads'
// speed. max_threads 0: the configured number. While the calling thread waits for others its
// interrupt (base/interrupt.h) is looked at; once that thread has an error, those that wait for a
// store wait no more, and what they throw of it does not count.
void parallel_for(std::size_t n, FunctionRef<void(std::size_t)> body, int max_threads = 0);
// The same. While the calling thread waits for others, which may be stuck in a store, it calls
// `poll` now and then, so that a signal is heard. What poll() throws is rethrown here as what a
// call throws is: not before every call that had started is over, for they use the caller's memory.
// What poll() throws goes before all else, and next what the calling thread threw that is no Error
// or says `cancelled`: a signal's, say, of which nobody would hear again.
void parallel_for(std::size_t n,
                  FunctionRef<void(std::size_t)> body,
                  int max_threads,
                  FunctionRef<void()> poll);

// Runs `task` on a pool thread, soon, however many parallel_for are under way and though all other
// tasks wait for it (base/task_wait.h). It must not throw.
void run_async(std::function<void()> task);

// The number of threads that parallel_for uses when told 0.
int thread_count();
// 0: the processors this process may use (base/processors.h).
void set_thread_count(int n);

// Grows by one with each fork on the way from the first process to this one.
unsigned fork_generation();

}  // namespace headrace
