#include "base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "base/fork_mutex.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;

struct Turns {
  Mutex mutex;
  ConditionVariable changed;
  int turn GUARDED_BY(mutex) = 0;

  void take(int mine, int turns) {
    MutexLock lock(mutex);
    while (turn < turns) {
      if (turn % 2 == mine) {
        ++turn;
        changed.notify_all();
      } else {
        changed.wait(mutex);
      }
    }
  }
};

TEST(Mutex, WaitsGiveItToOthersAndTakeItBack) {
  Turns turns;
  std::thread other([&] { turns.take(1, 2000); });
  turns.take(0, 2000);
  other.join();
  MutexLock lock(turns.mutex);
  EXPECT_EQ(turns.turn, 2000);
}

TEST(Mutex, IsHeldAfterAWaitThatTimedOut) {
  Mutex mutex;
  ConditionVariable never;
  {
    MutexLock lock(mutex);
    while (never.wait_for(mutex, milliseconds(1))) {
    }
    while (never.wait_until(mutex, std::chrono::steady_clock::now())) {
    }
    std::thread([&]() NO_THREAD_SAFETY_ANALYSIS { EXPECT_FALSE(mutex.try_lock()); }).join();
  }
  std::thread([&]() NO_THREAD_SAFETY_ANALYSIS {
    ASSERT_TRUE(mutex.try_lock());
    mutex.unlock();
  }).join();
}

// As another thread finds it.
bool is_free(Mutex& mutex) {
  bool free = false;
  std::thread([&]() NO_THREAD_SAFETY_ANALYSIS {
    free = mutex.try_lock();
    if (free) mutex.unlock();
  }).join();
  return free;
}

TEST(Mutex, IsFreeInAScopeThatDoesWithoutItAndHeldBehind) {
  Mutex mutex;
  const MutexLock lock(mutex);
  {
    const MutexUnlock free(mutex);
    EXPECT_TRUE(is_free(mutex));
  }
  EXPECT_FALSE(is_free(mutex));
  try {
    const MutexUnlock free(mutex);
    throw std::runtime_error("from what ran without the mutex");
  } catch (const std::runtime_error&) {
    EXPECT_FALSE(is_free(mutex));
  }
}

TEST(Mutex, TwoAreHeldWhicheverOthersTakeFirst) {
  Mutex one, other;
  int n = 0;  // under both
  const auto count = [&](Mutex& a, Mutex& b) {
    for (int i = 0; i < 2000; ++i) {
      const TwoMutexLock lock(a, b);
      ++n;
    }
  };
  std::thread thread([&] { count(other, one); });
  count(one, other);
  thread.join();
  EXPECT_EQ(n, 4000);
  {
    const TwoMutexLock lock(one, other);
    EXPECT_FALSE(is_free(one) || is_free(other));
  }
  EXPECT_TRUE(is_free(one) && is_free(other));
}

TEST(Mutex, OneThatForksFindUnlockedIsWaitedWithToo) {
  ForkMutex mutex;
  ConditionVariable changed;
  bool is_set = false;  // under the mutex
  std::thread other([&] {
    const ForkLock lock(mutex);
    is_set = true;
    changed.notify_all();
  });
  {
    const ForkLock lock(mutex);
    while (!is_set) changed.wait(mutex);
    EXPECT_FALSE(is_free(mutex));
  }
  EXPECT_TRUE(is_free(mutex));
  other.join();
}

TEST(Mutex, AScopeThatLetGoOfItDoesNotDoSoAgain) {
  Mutex mutex;
  const auto let_go_and_throw = [&] {
    MutexLock lock(mutex);
    lock.unlock();
    throw std::runtime_error("between unlock() and lock()");
  };
  EXPECT_THROW(let_go_and_throw(), std::runtime_error);
  {
    MutexLock lock(mutex);
    lock.unlock();
    lock.lock();
  }
  MutexLock lock(mutex);  // free: neither scope kept it
}

}  // namespace
}  // namespace headrace
