#include "base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

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
    std::thread([&] NO_THREAD_SAFETY_ANALYSIS { EXPECT_FALSE(mutex.try_lock()); }).join();
  }
  std::thread([&] NO_THREAD_SAFETY_ANALYSIS {
    ASSERT_TRUE(mutex.try_lock());
    mutex.unlock();
  }).join();
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
