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
#include "base/task_wait.h"
#include "base/thread_clock.h"
#include "headrace/error.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPollInterval = std::chrono::milliseconds(50);

// Threads beside the workers that stand by for tasks and have none: with one alone each task that
// it takes would start the next.
constexpr int kStandingBy = 2;
// So long nothing was begun or ended before tasks are taken for stuck, in code of the application
// that waits for other tasks: where none of their threads computes, and where one does.
constexpr auto kPatience = std::chrono::milliseconds(200);
constexpr auto kPatienceComputing = std::chrono::seconds(10);

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

// Whether nothing is lost where another error stands for this one.
bool says_no_more_than_cancelled(const std::exception_ptr& failure) {
  if (!failure) return true;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.code() == ErrorCode::cancelled;
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
      if (says_no_more_than_cancelled(unwanted)) unwanted = std::current_exception();
    }
  }

  // A signal was handled by what threw in the calling thread: nobody would hear of it again. A
  // request that it ended says `cancelled` to later polls.
  void rethrow() {
    if (application_error && says_no_more_than_cancelled(unwanted))
      std::rethrow_exception(application_error);
    if (unwanted) std::rethrow_exception(unwanted);
    const MutexLock lock(error_mutex);
    if (first.error) std::rethrow_exception(first.error);
  }
};

struct Task {
  const void* key;
  std::function<void()> call;
};

// A thread inside a task, in a list on the stacks of these.
struct Serving {
  const pthread_t thread;
  std::chrono::nanoseconds time;  // of a processor, when it was looked at
  Serving* next;
  const void* wanted = nullptr;  // the key of the task that it waits for
  bool stuck = false;            // taken for one that waits; until it is seen to compute
};

thread_local Serving* t_serving = nullptr;  // of a thread inside a task

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
    auto next_poll = Clock::now() + kPollInterval;
    while (job.helpers > 0) {
      left_.wait_until(mutex_, next_poll);
      if (job.helpers == 0 || Clock::now() < next_poll) continue;
      {
        const MutexUnlock free(mutex_);
        job.poll_caller();
      }
      next_poll = Clock::now() + kPollInterval;
    }
  }

  void post(const void* key, std::function<void()> task) {
    {
      const MutexLock lock(mutex_);
      if (tasks_.empty()) progress_ = Clock::now();
      tasks_.push_back({key, std::move(task)});
      start_workers();
      if (!is_guarded() && (workers_ + beside_ == 0 || t_serving != nullptr)) {
        tasks_.pop_back();
        throw Error(ErrorCode::io, "cannot start a thread", EAGAIN);
      }
    }
    work_.notify_one();
    task_work_.notify_one();
  }

  void begin_wait(const void* key) {
    {
      const MutexLock lock(mutex_);
      const auto task = std::ranges::find(tasks_, key, &Task::key);
      if (task != tasks_.end()) std::rotate(tasks_.begin(), task, task + 1);
      if (!is_guarded()) throw Error(ErrorCode::io, "cannot start a thread", EAGAIN);
      t_serving->wanted = key;
    }
    task_work_.notify_one();
  }
  void end_wait() {
    const MutexLock lock(mutex_);
    t_serving->wanted = nullptr;
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
    const int limit = std::max(thread_count(), 1);
    while (lacks_workers() && workers_ < limit) {
      if (!start([this] { serve(); })) break;
      ++workers_;
      ++idle_;
    }
    is_guarded();
  }
  bool lacks_workers() REQUIRES(mutex_) {
    std::size_t wanted = tasks_.size();
    for (const Job* job : jobs_) {
      if (!job->is_handed_out()) wanted += static_cast<std::size_t>(job->free_seats);
    }
    return static_cast<std::size_t>(idle_) < wanted;
  }

  // Whether each task has a worker that is free for it, or a thread stands by, which is started
  // when there is none. Tasks may wait for tasks: without that thread all could, for ever.
  bool is_guarded() REQUIRES(mutex_) {
    if (tasks_.empty() || standing_by_ > 0 || !lacks_workers()) return true;
    if (!start([this] { stand_by(); })) return false;
    ++standing_by_;
    return true;
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
      Job* const job = tasks_.empty() || has_active_task() ? joinable() : nullptr;
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

  // Of a thread beside the workers. It ends when enough others stand by.
  void stand_by() {
    const MutexLock lock(mutex_);
    for (;;) {
      wait_for_need();
      --standing_by_;
      ++beside_;
      serve_task();
      --beside_;
      if (standing_by_ >= kStandingBy) return;
      ++standing_by_;
    }
  }

  // Until there is a task and no thread at work on one: all are in jobs, or wait for other tasks.
  // Of a wait in code of the application nobody is told: what looks like it counts, too, ever more
  // reluctantly, as each thread more takes memory.
  void wait_for_need() REQUIRES(mutex_) {
    for (;;) {
      if (tasks_.empty()) {
        task_work_.wait(mutex_);
        continue;
      }
      if (!has_active_task()) return;
      look_at_threads();
      const Clock::duration patience = computing_ ? kPatienceComputing : kPatience;
      if (Clock::now() >= progress_ + (1 + beside_) * patience) {
        for (Serving* serving = serving_; serving != nullptr; serving = serving->next)
          serving->stuck = true;
        return;
      }
      task_work_.wait_for(mutex_, kPatience);
    }
  }

  // Whether one inside a task had a quarter of a processor since the last look.
  void look_at_threads() REQUIRES(mutex_) {
    const auto now = Clock::now();
    const auto since = now - looked_;
    if (since < kPatience) return;
    looked_ = now;
    computing_ = since > 2 * kPatience;  // nobody looked for long: it cannot be told
    for (Serving* serving = serving_; serving != nullptr; serving = serving->next) {
      const auto time = processor_time(serving->thread);
      if (time - serving->time >= since / 4) {
        computing_ = true;
        serving->stuck = false;
      }
      serving->time = time;
    }
  }

  bool has_active_task() REQUIRES(mutex_) {
    for (const Serving* serving = serving_; serving != nullptr; serving = serving->next) {
      if (serving->wanted == nullptr && !serving->stuck) return true;
    }
    return false;
  }

  void serve_task() REQUIRES(mutex_) {
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    Serving self{pthread_self(), processor_time(pthread_self()), serving_};
    serving_ = &self;
    progress_ = Clock::now();
    if (!tasks_.empty() && is_guarded()) task_work_.notify_one();
    {
      const MutexUnlock free(mutex_);
      t_serving = &self;
      task.call();
    }
    // Who waited for it is about to go on: a thread that looks for work must not count it out. Its
    // key is another one's as soon as the task is no more.
    for (Serving* other = serving_; other != nullptr; other = other->next) {
      if (other->wanted == task.key) other->wanted = nullptr;
    }
    {
      const MutexUnlock free(mutex_);
      task.call = nullptr;
      t_serving = nullptr;
    }
    progress_ = Clock::now();
    Serving** place = &serving_;
    while (*place != &self) place = &(*place)->next;
    *place = self.next;
  }

  Job* joinable() REQUIRES(mutex_) {
    for (Job* job : jobs_) {
      if (job->free_seats > 0 && !job->is_handed_out()) return job;
    }
    return nullptr;
  }

  Mutex mutex_;
  ConditionVariable work_;                     // a job or a task came
  ConditionVariable task_work_;                // a task came, or one waits for another
  ConditionVariable left_;                     // the last helper left a job
  std::vector<Job*> jobs_ GUARDED_BY(mutex_);  // whose callers are still inside run()
  std::deque<Task> tasks_ GUARDED_BY(mutex_);
  int workers_ GUARDED_BY(mutex_) = 0;
  int idle_ GUARDED_BY(mutex_) = 0;  // workers that serve nothing, those on their way among them
  int standing_by_ GUARDED_BY(mutex_) = 0;  // beside the workers, those on their way among them
  int beside_ GUARDED_BY(mutex_) = 0;       // beside the workers, inside a task
  Serving* serving_ GUARDED_BY(mutex_) = nullptr;  // of all threads inside a task
  Clock::time_point progress_ GUARDED_BY(mutex_);  // a task began or ended, or came as the first
  Clock::time_point looked_ GUARDED_BY(mutex_);
  bool computing_ GUARDED_BY(mutex_) = true;
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

void run_async(std::function<void()> task) { pool().post(nullptr, std::move(task)); }
void run_task(const void* key, std::function<void()> task) { pool().post(key, std::move(task)); }

TaskWait::TaskWait(const void* key) : counts_(t_serving != nullptr) {
  if (counts_) pool().begin_wait(key);
}
TaskWait::~TaskWait() {
  if (counts_) pool().end_wait();
}

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
