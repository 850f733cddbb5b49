#include "base/fork_mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

namespace headrace {
namespace {

// The child's status, which alarm() ends should it wait for a lock.
template <typename Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    body();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(ForkMutex, IsFreeInAChildWhoseParentsThreadHeldIt) {
  ForkMutex mutex;
  int guarded[2] = {0, 0};  // equal whenever the mutex is free
  std::atomic<bool> over{false};
  std::thread holder([&] {
    while (!over) {
      const ForkLock lock(mutex);
      ++guarded[0];
      std::this_thread::yield();
      ++guarded[1];
    }
  });
  for (int i = 0; i < 20; ++i) {
    const int status = in_child([&] {
      const ForkLock lock(mutex);
      if (guarded[0] != guarded[1]) _exit(1);
    });
    EXPECT_EQ(status, 0);
  }
  over = true;
  holder.join();
}

TEST(ForkMutex, MayComeAndGoWhileOthersFork) {
  std::atomic<bool> over{false};
  std::thread maker([&] {
    while (!over) {
      const auto first = std::make_unique<ForkMutex>();
      const auto second = std::make_unique<ForkMutex>();
      const ForkLock lock(*second);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const int status = in_child([] {
      ForkMutex fresh;
      const ForkLock lock(fresh);
    });
    EXPECT_EQ(status, 0);
  }
  over = true;
  maker.join();
}

TEST(ForkMutex, TryLockTellsWhetherItIsFree) {
  ForkMutex mutex;
  mutex.lock();
  std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
  mutex.unlock();
  ASSERT_TRUE(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace headrace
