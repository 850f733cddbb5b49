#include "base/key_locks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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

TEST(KeyLocks, AreFreeInAChildOfFork) {
  KeyLocks locks;
  const auto held = locks.lock("a");
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    {
      const auto lock = locks.lock("a");
      if (lock.mutex() == held.mutex()) ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace headrace
