#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/error.h"

namespace headrace {
namespace {

// One parallel_for: who takes an index runs it.
struct Job {
  Job(std::size_t count, FunctionRef<void(std::size_t)> call, int seats)
      : n(count), body(call), free_seats(seats) {}

  const std::size_t n;
  const FunctionRef<void(std::size_t)> body;
  int free_seats;   // further threads that may join; under the pool's mutex
  int helpers = 0;  // threads inside, the caller not counted; under the pool's mutex
  std::atomic<std::size_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  void work() {
    for (;;) {
      const std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= n) return;
      try {
        body(i);
      } catch (...) {
        next.store(n, std::memory_order_relaxed);
        std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
    }
  }
};

class Pool {
 public:
  void run(Job& job) {
    const int seats = job.free_seats;  // workers count it down from here on
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(&job);
      start_workers(seats);
    }
    wake(seats);
    job.work();
    std::unique_lock lock(mutex_);
    std::erase(jobs_, &job);
    left_.wait(lock, [&] { return job.helpers == 0; });
  }

  void post(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      start_workers(1);
      if (workers_ == 0) throw Error(ErrorCode::io, "cannot start a thread", EAGAIN);
      tasks_.push_back(std::move(task));
    }
    work_.notify_one();
  }

  std::mutex& mutex() { return mutex_; }

 private:
  void wake(int n) {
    for (int i = 0; i < n; ++i) work_.notify_one();
  }

  void start_workers(int wanted) {
    const int limit = std::max(thread_count(), 1);
    for (int missing = wanted - idle_; missing > 0 && workers_ < limit; --missing) {
      try {
        std::thread([this] { serve(); }).detach();
      } catch (const std::system_error&) {
        return;  // no thread to be had: the caller of a job does without
      }
      ++workers_;
      ++idle_;
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (Job* job = joinable()) {
        --job->free_seats;
        ++job->helpers;
        --idle_;
        lock.unlock();
        job->work();
        lock.lock();
        ++idle_;
        if (--job->helpers == 0) left_.notify_all();
      } else if (!tasks_.empty()) {
        auto task = std::move(tasks_.front());
        tasks_.pop_front();
        --idle_;
        lock.unlock();
        task();
        task = nullptr;
        lock.lock();
        ++idle_;
      } else {
        work_.wait(lock);
      }
    }
  }

  Job* joinable() {
    for (Job* job : jobs_) {
      if (job->free_seats > 0 && job->next.load(std::memory_order_relaxed) < job->n) return job;
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::condition_variable work_;  // a job or a task came
  std::condition_variable left_;  // the last helper left a job
  std::vector<Job*> jobs_;        // whose callers are still inside run()
  std::deque<std::function<void()>> tasks_;
  int workers_ = 0;
  int idle_ = 0;
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

// Processors by affinity, less where a cgroup v2 quota gives fewer.
int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (std::FILE* f = std::fopen("/sys/fs/cgroup/cpu.max", "re")) {
    long long quota = 0;
    long long period = 0;
    if (std::fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
      n = std::min<int>(n, static_cast<int>((quota + period - 1) / period));
    }
    std::fclose(f);
  }
  return std::max(n, 1);
}

}  // namespace

void parallel_for(std::size_t n, FunctionRef<void(std::size_t)> body, int max_threads) {
  int threads = max_threads > 0 ? max_threads : thread_count();
  if (n < static_cast<std::size_t>(threads)) threads = static_cast<int>(n);
  if (threads <= 1) {
    for (std::size_t i = 0; i < n; ++i) body(i);
    return;
  }
  Job job(n, body, threads - 1);
  pool().run(job);
  if (job.error) std::rethrow_exception(job.error);
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
