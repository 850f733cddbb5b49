#include "base/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "base/mutex.h"
#include "base/processors.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);

struct Failure {
  std::exception_ptr error;  // null: there is none
  std::size_t index = 0;
};

// Whether another error may stand for this one: not for a signal's, nor for a request to end.
bool is_of_the_library(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.code() != ErrorCode::cancelled;
  } catch (...) {
    return false;
  }
}

// One parallel_for: who takes an index runs it.
struct Job {
  Job(std::size_t count,
      FunctionRef<void(std::size_t)> call,
      int seats,
      const FunctionRef<void()>* poll_of_caller)
      : n(count),
        body(call),
        poll(poll_of_caller),
        interrupt(current_interrupt()),
        free_seats(seats) {}

  const std::size_t n;
  const FunctionRef<void(std::size_t)> body;
  const FunctionRef<void()>* const poll;         // null: there is none
  const std::function<void()>* const interrupt;  // the caller's; likewise
  int free_seats;   // further threads that may join; under the pool's mutex
  int helpers = 0;  // threads inside, the caller not counted; under the pool's mutex
  std::atomic<std::size_t> next{0};
  std::exception_ptr unwanted;           // what the caller's poll or interrupt threw
  std::exception_ptr application_error;  // what the calling thread threw that is no Error
  std::atomic<bool> given_up{false};     // the calling thread has an error
  Mutex error_mutex;
  Failure first GUARDED_BY(error_mutex);  // of all other errors the one of the lowest index

  bool is_handed_out() const { return next.load(std::memory_order_relaxed) >= n; }

  // Until all indices are handed out or one call fails, which ends the hand-out.
  Failure work() {
    for (;;) {
      const std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= n) return {};
      try {
        body(i);
      } catch (...) {
        next.store(n, std::memory_order_relaxed);
        return {std::current_exception(), i};
      }
    }
  }

  // Indices are handed out in ascending order and every call that began is waited for: the lowest
  // index that fails is the same whichever thread is faster.
  void keep(Failure failure) {
    const MutexLock lock(error_mutex);
    if (!first.error || failure.index < first.index) std::swap(first, failure);
  }

  void work_as_caller() {
    Failure failure = work();
    if (!failure.error) return;
    given_up.store(true, std::memory_order_relaxed);
    if (is_of_the_library(failure.error)) {
      keep(std::move(failure));
    } else {
      application_error = std::move(failure.error);
    }
  }
  void work_as_helper() {
    bool was_told = false;
    const InterruptScope scope([&] {
      if (given_up.load(std::memory_order_relaxed)) {
        was_told = true;
        throw Error(ErrorCode::cancelled, "the request was cancelled");
      }
    });
    Failure failure = work();
    if (failure.error && !was_told) keep(std::move(failure));
  }

  // Goes on once it has thrown: whoever is waited for may be stuck, and the next signal's handler
  // may be what ends it.
  void poll_caller() {
    try {
      if (poll != nullptr) (*poll)();
      if (interrupt != nullptr) (*interrupt)();
    } catch (...) {
      next.store(n, std::memory_order_relaxed);
      given_up.store(true, std::memory_order_relaxed);
      if (!unwanted) unwanted = std::current_exception();
    }
  }

  // A signal was handled by what threw in the calling thread: nobody would hear of it again.
  void rethrow() {
    if (unwanted) std::rethrow_exception(unwanted);
    if (application_error) std::rethrow_exception(application_error);
    const MutexLock lock(error_mutex);
    if (first.error) std::rethrow_exception(first.error);
  }
};

class Pool;
std::atomic<Pool*> g_pool{nullptr};
std::atomic<unsigned> g_generation{0};

class Pool {
 public:
  void run(Job& job) {
    const int seats = job.free_seats;  // workers count it down from here on
    if (invite_to(job)) {
      for (int i = 0; i < seats; ++i) work_.notify_one();
    }
    job.work_as_caller();
    const MutexLock lock(mutex_);
    std::erase(jobs_, &job);
    if (job.poll == nullptr && job.interrupt == nullptr) {
      while (job.helpers > 0) left_.wait(mutex_);
      return;
    }
    auto next_poll = std::chrono::steady_clock::now() + kPollInterval;
    while (job.helpers > 0) {
      left_.wait_until(mutex_, next_poll);
      if (job.helpers == 0 || std::chrono::steady_clock::now() < next_poll) continue;
      {
        const MutexUnlock free(mutex_);
        job.poll_caller();
      }
      next_poll = std::chrono::steady_clock::now() + kPollInterval;
    }
  }

  void post(std::function<void()> task) {
    {
      const MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
      start_workers();
      if (idle_ == 0 && serving_tasks_ == 0 && !has_task_worker_)
        has_task_worker_ = start([this] { serve_tasks(); });
      if (workers_ == 0 && !has_task_worker_) {
        tasks_.pop_back();
        throw Error(ErrorCode::io, "cannot start a thread", EAGAIN);
      }
    }
    work_.notify_one();
    task_work_.notify_one();
  }

  // Of this process.
  static Pool& get() { return *g_pool.load(); }
  // Its lock is held from the first of these to one of the others.
  static void before_fork() ACQUIRE(get().mutex_) { get().mutex_.lock(); }
  static void after_fork_in_parent() RELEASE(get().mutex_) { get().mutex_.unlock(); }
  static void after_fork_in_child() RELEASE(get().mutex_) {
    get().mutex_.unlock();
    g_pool.store(new Pool);
    g_generation.fetch_add(1);
  }

 private:
  // False when there is no memory to note it: its caller does all of it.
  bool invite_to(Job& job) {
    const MutexLock lock(mutex_);
    try {
      jobs_.push_back(&job);
    } catch (const std::bad_alloc&) {
      return false;
    }
    start_workers();
    return true;
  }

  // As many as what is there to do could take, seats and tasks. A worker that was told of one thing
  // may be on its way to it still: to count it as idle for the next would leave that one waiting,
  // for hours behind a long job.
  void start_workers() REQUIRES(mutex_) {
    std::size_t wanted = tasks_.size();
    for (const Job* job : jobs_) {
      if (!job->is_handed_out()) wanted += static_cast<std::size_t>(job->free_seats);
    }
    const int limit = std::max(thread_count(), 1);
    while (static_cast<std::size_t>(idle_) < wanted && workers_ < limit) {
      if (!start([this] { serve(); })) return;
      ++workers_;
      ++idle_;
    }
  }

  // False when there is none to be had, for whatever reason: what is under way does without. An
  // exception must not pass here, as the job of a caller who left would stay among jobs_.
  template <typename Body>
  static bool start(Body body) {
    try {
      std::thread(body).detach();
    } catch (...) {
      return false;
    }
    return true;
  }

  void serve() {
    const MutexLock lock(mutex_);
    for (;;) {
      // Jobs first, as they end what was begun; but never all workers for jobs and none for tasks.
      Job* const job = tasks_.empty() || serving_tasks_ > 0 ? joinable() : nullptr;
      if (job) {
        --job->free_seats;
        ++job->helpers;
        --idle_;
        {
          const MutexUnlock free(mutex_);
          job->work_as_helper();
        }
        ++idle_;
        if (--job->helpers == 0) left_.notify_all();
      } else if (!tasks_.empty()) {
        --idle_;
        serve_task();
        ++idle_;
      } else {
        work_.wait(mutex_);
      }
    }
  }

  // Of a worker beside the others, started when jobs have all of those: it serves nothing else, and
  // only while nobody does.
  void serve_tasks() {
    const MutexLock lock(mutex_);
    for (;;) {
      while (tasks_.empty() || serving_tasks_ > 0) task_work_.wait(mutex_);
      serve_task();
    }
  }

  void serve_task() REQUIRES(mutex_) {
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    ++serving_tasks_;
    {
      const MutexUnlock free(mutex_);
      task();
      task = nullptr;
    }
    --serving_tasks_;
  }

  Job* joinable() REQUIRES(mutex_) {
    for (Job* job : jobs_) {
      if (job->free_seats > 0 && !job->is_handed_out()) return job;
    }
    return nullptr;
  }

  Mutex mutex_;
  ConditionVariable work_;                     // a job or a task came
  ConditionVariable task_work_;                // a task came
  ConditionVariable left_;                     // the last helper left a job
  std::vector<Job*> jobs_ GUARDED_BY(mutex_);  // whose callers are still inside run()
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mutex_);
  bool has_task_worker_ GUARDED_BY(mutex_) = false;
  int workers_ GUARDED_BY(mutex_) = 0;
  int idle_ GUARDED_BY(mutex_) = 0;  // workers that serve nothing, those on their way among them
  int serving_tasks_ GUARDED_BY(mutex_) = 0;  // workers inside a task
};

std::atomic<int> g_threads{0};

// The pool and its threads live until the process ends; a child of fork has neither and starts
// anew.
Pool& pool() {
  static const bool registered = [] {
    g_pool.store(new Pool);
    pthread_atfork(Pool::before_fork, Pool::after_fork_in_parent, Pool::after_fork_in_child);
    return true;
  }();
  static_cast<void>(registered);
  return Pool::get();
}

void run_parallel(std::size_t n,
                  FunctionRef<void(std::size_t)> body,
                  int max_threads,
                  const FunctionRef<void()>* poll) {
  int threads = max_threads > 0 ? max_threads : thread_count();
  if (n < static_cast<std::size_t>(threads)) threads = static_cast<int>(n);
  if (threads <= 1) {
    for (std::size_t i = 0; i < n; ++i) body(i);
    return;
  }
  Job job(n, body, threads - 1, poll);
  pool().run(job);
  job.rethrow();
}

}  // namespace

void parallel_for(std::size_t n, FunctionRef<void(std::size_t)> body, int max_threads) {
  run_parallel(n, body, max_threads, nullptr);
}

void parallel_for(std::size_t n,
                  FunctionRef<void(std::size_t)> body,
                  int max_threads,
                  FunctionRef<void()> poll) {
  run_parallel(n, body, max_threads, &poll);
}

void run_async(std::function<void()> task) { pool().post(std::move(task)); }

int thread_count() {
  const int set = g_threads.load(std::memory_order_relaxed);
  if (set > 0) return set;
  static const int processors = usable_processors();
  return processors;
}

void set_thread_count(int n) { g_threads.store(std::max(n, 0), std::memory_order_relaxed); }

unsigned fork_generation() {
  pool();
  return g_generation.load(std::memory_order_relaxed);
}

}  // namespace headrace
