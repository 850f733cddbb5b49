#include "base/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/processors.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);

// One parallel_for: who takes an index runs it.
struct Job {
  Job(std::size_t count,
      FunctionRef<void(std::size_t)> call,
      int seats,
      const FunctionRef<void()>* poll_of_caller)
      : n(count), body(call), poll(poll_of_caller), free_seats(seats) {}

  const std::size_t n;
  const FunctionRef<void(std::size_t)> body;
  const FunctionRef<void()>* const poll;  // null: there is none
  int free_seats;                         // further threads that may join; under the pool's mutex
  int helpers = 0;  // threads inside, the caller not counted; under the pool's mutex
  std::atomic<std::size_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;         // the helpers' first; under error_mutex
  std::exception_ptr caller_error;  // the calling thread's own

  bool is_handed_out() const { return next.load(std::memory_order_relaxed) >= n; }

  // Until all indices are handed out or one call fails, which ends the hand-out.
  std::exception_ptr work() {
    for (;;) {
      const std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= n) return nullptr;
      try {
        body(i);
      } catch (...) {
        next.store(n, std::memory_order_relaxed);
        return std::current_exception();
      }
    }
  }

  void work_as_caller() { caller_error = work(); }
  void work_as_helper() {
    std::exception_ptr failure = work();
    if (!failure) return;
    std::lock_guard lock(error_mutex);
    if (!error) error.swap(failure);
  }

  // Goes on once it has thrown: whoever is waited for may be stuck, and the next signal's handler
  // may be what ends it.
  void poll_caller() {
    try {
      (*poll)();
    } catch (...) {
      next.store(n, std::memory_order_relaxed);
      if (!caller_error) caller_error = std::current_exception();
    }
  }

  void rethrow() const {
    if (caller_error) std::rethrow_exception(caller_error);
    if (error) std::rethrow_exception(error);
  }
};

class Pool {
 public:
  void run(Job& job) {
    const int seats = job.free_seats;  // workers count it down from here on
    if (invite_to(job)) {
      for (int i = 0; i < seats; ++i) work_.notify_one();
    }
    job.work_as_caller();
    std::unique_lock lock(mutex_);
    std::erase(jobs_, &job);
    if (!job.poll) return left_.wait(lock, [&] { return job.helpers == 0; });
    auto next_poll = std::chrono::steady_clock::now() + kPollInterval;
    while (job.helpers > 0) {
      left_.wait_until(lock, next_poll);
      if (job.helpers == 0 || std::chrono::steady_clock::now() < next_poll) continue;
      lock.unlock();
      job.poll_caller();
      lock.lock();
      next_poll = std::chrono::steady_clock::now() + kPollInterval;
    }
  }

  void post(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
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

  std::mutex& mutex() { return mutex_; }

 private:
  // False when there is no memory to note it: its caller does all of it.
  bool invite_to(Job& job) {
    std::lock_guard lock(mutex_);
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
  void start_workers() {
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
    std::unique_lock lock(mutex_);
    for (;;) {
      // Jobs first, as they end what was begun; but never all workers for jobs and none for tasks.
      Job* const job = tasks_.empty() || serving_tasks_ > 0 ? joinable() : nullptr;
      if (job) {
        --job->free_seats;
        ++job->helpers;
        --idle_;
        lock.unlock();
        job->work_as_helper();
        lock.lock();
        ++idle_;
        if (--job->helpers == 0) left_.notify_all();
      } else if (!tasks_.empty()) {
        --idle_;
        serve_task(lock);
        ++idle_;
      } else {
        work_.wait(lock);
      }
    }
  }

  // Of a worker beside the others, started when jobs have all of those: it serves nothing else, and
  // only while nobody does.
  void serve_tasks() {
    std::unique_lock lock(mutex_);
    for (;;) {
      task_work_.wait(lock, [&] { return !tasks_.empty() && serving_tasks_ == 0; });
      serve_task(lock);
    }
  }

  void serve_task(std::unique_lock<std::mutex>& lock) {
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    ++serving_tasks_;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    --serving_tasks_;
  }

  Job* joinable() {
    for (Job* job : jobs_) {
      if (job->free_seats > 0 && !job->is_handed_out()) return job;
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::condition_variable work_;       // a job or a task came
  std::condition_variable task_work_;  // a task came
  std::condition_variable left_;       // the last helper left a job
  std::vector<Job*> jobs_;             // whose callers are still inside run()
  std::deque<std::function<void()>> tasks_;
  bool has_task_worker_ = false;
  int workers_ = 0;
  int idle_ = 0;           // workers that serve nothing, those on their way among them
  int serving_tasks_ = 0;  // workers inside a task
};

std::atomic<Pool*> g_pool{nullptr};
std::atomic<int> g_threads{0};
std::atomic<unsigned> g_generation{0};

// The pool and its threads live until the process ends; a child of fork has neither and starts
// anew.
Pool& pool() {
  static const bool registered = [] {
    g_pool.store(new Pool);
    pthread_atfork([] { g_pool.load()->mutex().lock(); },
                   [] { g_pool.load()->mutex().unlock(); },
                   [] {
                     g_pool.load()->mutex().unlock();
                     g_pool.store(new Pool);
                     g_generation.fetch_add(1);
                   });
    return true;
  }();
  static_cast<void>(registered);
  return *g_pool.load();
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
