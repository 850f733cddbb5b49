#include "base/key_locks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace headrace {
namespace {

TEST(KeyLocks, OneThreadAtATimeHoldsAKey) {
  KeyLocks locks;
  int count = 0;  // a race would lose some
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        const auto lock = locks.lock("a");
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 40'000);
}

// Code of the application runs under a lock, and may take others.
TEST(KeyLocks, OneThreadHoldsAnyNumberOfKeys) {
  KeyLocks locks;
  std::vector<KeyLocks::Lock> held;
  for (int i = 0; i < 5'000; ++i) held.push_back(locks.lock(std::to_string(i)));
  held.clear();
  for (int i = 0; i < 5'000; ++i) held.push_back(locks.lock(std::to_string(i)));
}

TEST(KeyLocks, AWaitEndsWhenPollThrows) {
  KeyLocks locks;
  auto held = locks.lock("a");
  int polls = 0;
  std::thread waits([&] {
    EXPECT_THROW(static_cast<void>(locks.lock("a",
                                              [&] {
                                                if (++polls == 2) throw std::runtime_error("stop");
                                              })),
                 std::runtime_error);
  });
  waits.join();
  EXPECT_EQ(polls, 2);
  held = {};
  static_cast<void>(locks.lock("a"));
}

TEST(KeyLocks, AnyThreadReleasesOne) {
  KeyLocks locks;
  auto lock = locks.try_lock("a");
  ASSERT_TRUE(lock);
  EXPECT_FALSE(locks.try_lock("a"));
  EXPECT_TRUE(locks.try_lock("b"));
  std::thread([mine = std::move(*lock)]() mutable { mine = {}; }).join();
  EXPECT_TRUE(locks.try_lock("a"));
  const auto again = locks.lock("a");
  EXPECT_FALSE(locks.try_lock("a"));
}

TEST(KeyLocks, AreFreeInAChildOfFork) {
  KeyLocks locks;
  const auto held = locks.lock("a");
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    static_cast<void>(locks.lock("a"));
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace headrace
