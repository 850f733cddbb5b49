#include "simt/ranges.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "support/fork.h"

namespace headrace {
namespace {

class Ranges : public testing::Test {
 protected:
  Ranges() { set_thread_count(4); }
  ~Ranges() override { set_thread_count(0); }
};

// How often each index is visited.
std::vector<int> visits(std::size_t n, std::size_t length) {
  std::vector<int> visited(n);
  for_each_range(n, length, [&](std::size_t begin, std::size_t end) {
    EXPECT_EQ(begin % length, 0u);
    EXPECT_EQ(end, std::min(begin + length, n));
    for (std::size_t i = begin; i < end; ++i) ++visited[i];
  });
  return visited;
}

TEST_F(Ranges, CoverEachIndexOnce) {
  for (const std::size_t n : {0, 1, 99, 100, 101, 5'000})
    for (const std::size_t length : {1, 7, 100, 5'001})
      EXPECT_EQ(visits(n, length), std::vector<int>(n, 1)) << n << " by " << length;
}

TEST_F(Ranges, OneStaysOnItsThread) {
  std::thread::id thread;
  for_each_range(100, 100, [&](std::size_t, std::size_t) { thread = std::this_thread::get_id(); });
  EXPECT_EQ(thread, std::this_thread::get_id());
}

TEST_F(Ranges, NestInThreadsOfThePool) {
  std::atomic<int> whole{0};
  parallel_for(8, [&](std::size_t) { whole += visits(1'000, 10) == std::vector<int>(1'000, 1); });
  EXPECT_EQ(whole, 8);
}

TEST_F(Ranges, WorkInAChildOfFork) {
  HEADRACE_SKIP_WHERE_CHILDREN_START_NO_THREADS();
  visits(1'000, 10);  // the parent has threads
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(visits(1'000, 10) == std::vector<int>(1'000, 1) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Ranges, HandOnWhatIsThrown) {
  const auto fail = [](std::size_t begin, std::size_t) {
    if (begin == 500) throw std::runtime_error("no");
  };
  EXPECT_THROW(for_each_range(1'000, 100, fail), std::runtime_error);
}

}  // namespace
}  // namespace headrace
