#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/task_wait.h"
#include "conformance/config_guard.h"
#include "headrace/error.h"
#include "support/fork.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;

constexpr auto kForEver = 30s;  // a test that waits so long has failed

// So many, and what there was before at the end.
struct Threads : test::ConfigGuard {
  explicit Threads(int n) { test::set_threads(n); }
};

// Closed at first; whoever waits goes on when it opens.
class Gate {
 public:
  void open() { opened_.set_value(); }
  bool wait() const { return future_.wait_for(kForEver) == std::future_status::ready; }

 private:
  std::promise<void> opened_;
  std::shared_future<void> future_{opened_.get_future().share()};
};

TEST(ParallelFor, CallsEachIndexOnce) {
  const Threads threads(4);
  for (const std::size_t n : {0, 1, 2, 3, 4, 5, 1000}) {
    std::vector<std::atomic<int>> calls(n);
    parallel_for(n, [&](std::size_t i) { ++calls[i]; });
    for (const auto& count : calls) EXPECT_EQ(count, 1) << n;
  }
}

TEST(ParallelFor, UsesNoMoreThreadsThanTold) {
  const Threads threads(8);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  parallel_for(
      200,
      [&](std::size_t) {
        std::this_thread::yield();
        std::lock_guard lock(mutex);
        seen.insert(std::this_thread::get_id());
      },
      3);
  EXPECT_LE(seen.size(), 3U);
}

TEST(ParallelFor, NestsWithoutThreadsToSpare) {
  const Threads threads(2);
  std::atomic<int> calls{0};
  parallel_for(4, [&](std::size_t) {
    parallel_for(4, [&](std::size_t) { parallel_for(4, [&](std::size_t) { ++calls; }); });
  });
  EXPECT_EQ(calls, 64);
}

TEST(ParallelFor, RethrowsWhenAllHaveReturned) {
  const Threads threads(4);
  for (std::size_t bad = 0; bad < 8; ++bad) {
    std::atomic<int> inside{0};
    const auto body = [&](std::size_t i) {
      ++inside;
      std::this_thread::yield();
      --inside;
      if (i == bad) throw std::runtime_error("bad");
    };
    EXPECT_THROW(parallel_for(1000, body), std::runtime_error);
    EXPECT_EQ(inside, 0);
  }
}

// The slow of two threads has the lower index and fails once the other has: the calling one, then a
// helper.
TEST(ParallelFor, RethrowsTheErrorOfTheLowestIndexWhoeverIsFaster) {
  const Threads threads(2);
  const auto caller = std::this_thread::get_id();
  for (const bool slow_is_caller : {true, false}) {
    Gate slow_is_inside;
    Gate failed;
    std::size_t slow_index = 0;
    const auto call = [&](std::size_t i) {
      std::shared_ptr<void> at_exit;
      if ((std::this_thread::get_id() == caller) == slow_is_caller) {
        slow_index = i;
        slow_is_inside.open();
        EXPECT_TRUE(failed.wait());
        std::this_thread::sleep_for(1ms);
      } else {
        EXPECT_TRUE(slow_is_inside.wait());
        if (i < slow_index) return;  // the next is above it
        // Runs as the exception leaves: the slow one is let go by a failure under way.
        at_exit.reset(&failed, [](Gate* gate) { gate->open(); });
      }
      throw Error(ErrorCode::corrupt, std::to_string(i));
    };
    try {
      parallel_for(3, call);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), std::to_string(slow_index));
    }
  }
}

TEST(ParallelFor, WhatIsNoErrorOfTheCallersGoesBeforeThoseOfHelpers) {
  const Threads threads(2);
  const auto caller = std::this_thread::get_id();
  for (int round = 0; round < 20; ++round) {
    Gate callers;
    Gate helpers;
    const auto call = [&](std::size_t) {
      if (std::this_thread::get_id() == caller) {
        callers.open();
        EXPECT_TRUE(helpers.wait());
        throw std::domain_error("interrupted");
      }
      helpers.open();
      EXPECT_TRUE(callers.wait());  // else there may be no index left for it
      throw Error(ErrorCode::io, "the helper's");
    };
    EXPECT_THROW(parallel_for(2, call), std::domain_error);
  }
}

// A helper that is in a store for long: the caller has done its part and waits.
template <typename Body>
void with_stuck_helper(Body body) {
  const Threads threads(2);
  const auto caller = std::this_thread::get_id();
  Gate started;
  Gate leave;
  std::atomic<bool> left{false};
  const auto call = [&](std::size_t) {
    if (std::this_thread::get_id() == caller) {
      ASSERT_TRUE(started.wait());  // so that there is one
      return;
    }
    started.open();
    ASSERT_TRUE(leave.wait());
    left = true;
  };
  body(call, leave);
  EXPECT_TRUE(left) << "the caller left a helper behind that uses its memory";
}

TEST(ParallelFor, PollsWhileItWaitsForAHelper) {
  with_stuck_helper([](auto call, Gate& leave) {
    int polls = 0;
    parallel_for(2, call, 2, [&] {
      if (++polls == 2) leave.open();
    });
    EXPECT_GE(polls, 2);
  });
}

TEST(ParallelFor, WhatPollThrowsComesWhenTheHelperHasLeft) {
  with_stuck_helper([](auto call, Gate& leave) {
    int polls = 0;
    const auto poll = [&] {
      if (++polls == 3) leave.open();
      throw std::domain_error("interrupted " + std::to_string(polls));
    };
    try {
      parallel_for(2, call, 2, poll);
      ADD_FAILURE();
    } catch (const std::domain_error& error) {
      EXPECT_STREQ(error.what(), "interrupted 1");
    }
    EXPECT_GE(polls, 3) << "a second signal is to be heard, too";
  });
}

TEST(ParallelFor, WhatPollThrowsGoesBeforeErrorsOfHelpers) {
  const Threads threads(2);
  const auto caller = std::this_thread::get_id();
  Gate started;
  Gate leave;
  const auto call = [&](std::size_t) {
    if (std::this_thread::get_id() == caller) {
      EXPECT_TRUE(started.wait());
      return;
    }
    started.open();
    EXPECT_TRUE(leave.wait());
    throw std::runtime_error("cancelled");
  };
  const auto poll = [&] {
    leave.open();
    throw std::domain_error("interrupted");
  };
  EXPECT_THROW(parallel_for(2, call, 2, poll), std::domain_error);
}

TEST(ParallelFor, WhatPollThrowsGoesBeforeTheCallersOwnError) {
  const Threads threads(2);
  const auto caller = std::this_thread::get_id();
  Gate started;
  Gate leave;
  const auto call = [&](std::size_t) {
    if (std::this_thread::get_id() == caller) {
      EXPECT_TRUE(started.wait());
      throw std::runtime_error("the caller's");
    }
    started.open();
    EXPECT_TRUE(leave.wait());
  };
  const auto poll = [&] {
    leave.open();
    throw std::domain_error("interrupted");
  };
  EXPECT_THROW(parallel_for(2, call, 2, poll), std::domain_error);
}

// Of a request that the caller's own exception has ended.
TEST(ParallelFor, WhatTheCallerThrewGoesBeforeAPollThatSaysCancelled) {
  const Threads threads(2);
  const auto caller = std::this_thread::get_id();
  for (const bool poll_hears_a_signal : {false, true}) {
    Gate started;
    Gate leave;
    const auto call = [&](std::size_t) {
      if (std::this_thread::get_id() == caller) {
        EXPECT_TRUE(started.wait());
        throw std::domain_error("interrupted");
      }
      started.open();
      EXPECT_TRUE(leave.wait());
    };
    int polls = 0;
    const auto poll = [&] {
      if (++polls == 2) leave.open();
      if (polls == 2 && poll_hears_a_signal) throw std::out_of_range("a second signal");
      throw Error(ErrorCode::cancelled, "the request was cancelled");
    };
    if (poll_hears_a_signal) {
      EXPECT_THROW(parallel_for(2, call, 2, poll), std::out_of_range);
    } else {
      EXPECT_THROW(parallel_for(2, call, 2, poll), std::domain_error);
    }
  }
}

TEST(RunAsync, RunsWhatIsGiven) {
  const Threads threads(2);
  std::atomic<int> runs{0};
  Gate done;
  for (int i = 0; i < 100; ++i) {
    run_async([&] {
      if (++runs == 100) done.open();
    });
  }
  EXPECT_TRUE(done.wait());
}

// One job that has invited all the threads it may have, and holds them.
void expect_task_runs_beside_jobs(int threads, int jobs) {
  const Threads set(threads);
  Gate leave;
  std::atomic<int> inside{0};
  std::vector<std::thread> callers;
  for (int j = 0; j < jobs; ++j) {
    callers.emplace_back([&] {
      parallel_for(static_cast<std::size_t>(threads), [&](std::size_t) {
        ++inside;
        EXPECT_TRUE(leave.wait());
      });
    });
  }
  // The task comes while workers are on their way to their seats, or in them.
  while (inside < jobs) std::this_thread::yield();
  Gate ran;
  run_async([&] { ran.open(); });
  EXPECT_TRUE(ran.wait()) << threads << " threads, " << jobs << " jobs";
  leave.open();
  for (std::thread& caller : callers) caller.join();
}

TEST(RunAsync, DoesNotWaitForAJobThatLeavesThreads) { expect_task_runs_beside_jobs(4, 1); }
TEST(RunAsync, DoesNotWaitForJobsThatHaveAllThreads) {
  for (const int threads : {2, 4}) expect_task_runs_beside_jobs(threads, 4);
}

TEST(RunAsync, DoesNotStarveBehindJobAfterJob) {
  const Threads threads(2);
  std::atomic<bool> over{false};
  std::thread caller([&] {
    while (!over) parallel_for(8, [](std::size_t) { std::this_thread::yield(); });
  });
  for (int i = 0; i < 50; ++i) {
    Gate ran;
    run_async([&] { ran.open(); });
    EXPECT_TRUE(ran.wait());
  }
  over = true;
  caller.join();
}

int threads_of_process() {
  int n = 0;
  std::error_code none;
  for (std::filesystem::directory_iterator i("/proc/self/task", none), end; i != end; ++i) ++n;
  return n;
}

// Each of `tasks` tasks posts another one and waits for it, which the pool is told or not. The most
// threads that there were beside the workers.
int wait_for_tasks_in_tasks(int threads, int tasks, bool is_told) {
  const Threads set(threads);
  const int before = threads_of_process();
  std::atomic<int> left{tasks};
  std::atomic<int> most{0};
  Gate done;
  for (int i = 0; i < tasks; ++i) {
    run_async([&, is_told] {
      const auto inner = std::make_shared<Gate>();
      run_task(inner.get(), [inner] { inner->open(); });
      if (is_told) {
        const TaskWait waiting(inner.get());
        EXPECT_TRUE(inner->wait());
      } else {
        EXPECT_TRUE(inner->wait());
      }
      most = std::max(most.load(), threads_of_process());
      if (--left == 0) done.open();
    });
  }
  EXPECT_TRUE(done.wait());
  return most - before - threads;
}

// In a process whose pool has no thread yet.
template <typename Body>
bool is_true_in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

// Of many threads: ThreadSanitizer, which takes those of a child for its own, has them in here.
template <typename Body>
bool is_true_alone(Body body) {
#ifdef __SANITIZE_THREAD__
  return body();
#else
  return is_true_in_child(body);
#endif
}

TEST(RunAsync, TasksMayWaitForTasks) {
  for (const int threads : {1, 2, 4}) {
    const auto body = [&] { return wait_for_tasks_in_tasks(threads, 300, true) <= threads + 4; };
    EXPECT_TRUE(is_true_alone(body)) << threads;
  }
}

// Those beside the workers end, but for two that stand by.
TEST(RunAsync, TasksMayWaitForTasksOfWhichThePoolIsNotTold) {
  for (const int threads : {1, 2}) {
    const auto body = [&] {
      const int before = threads_of_process();
      wait_for_tasks_in_tasks(threads, threads + 2, false);
      while (threads_of_process() > before + threads + 2) std::this_thread::sleep_for(1ms);
      return true;
    };
    EXPECT_TRUE(is_true_alone(body)) << threads;
  }
}

// A worker inside a task waits for its helper, which waits for a task.
TEST(RunAsync, HelpersOfTasksMayWaitForTasks) {
  const Threads threads(2);
  Gate done;
  std::atomic<int> left{4};
  for (int i = 0; i < 4; ++i) {
    run_async([&] {
      parallel_for(4, [](std::size_t) {
        auto inner = std::make_shared<Gate>();
        run_task(inner.get(), [inner] { inner->open(); });
        const TaskWait waiting(inner.get());
        EXPECT_TRUE(inner->wait());
      });
      if (--left == 0) done.open();
    });
  }
  EXPECT_TRUE(done.wait());
}

TEST(ThreadPool, AChildOfForkHasItsOwn) {
  HEADRACE_SKIP_WHERE_CHILDREN_START_NO_THREADS();
  const Threads threads(4);
  std::atomic<int> before{0};
  parallel_for(8, [&](std::size_t) { ++before; });
  const unsigned generation = fork_generation();
  EXPECT_TRUE(is_true_in_child([&] {
    std::atomic<int> calls{0};
    parallel_for(100, [&](std::size_t) { ++calls; });
    Gate ran;
    run_async([&] { ran.open(); });
    return calls == 100 && ran.wait() && fork_generation() == generation + 1;
  }));
}

}  // namespace
}  // namespace headrace
