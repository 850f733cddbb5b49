#include "headrace/future.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "engine/request/async.h"
#include "support/fork.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;

// A request that stays inside until told.
struct Gate {
  std::promise<void> promise;
  std::shared_future<void> future{promise.get_future()};
  void open() { promise.set_value(); }
};

Future<int> gated(Gate& gate, int value) {
  return start_request<int>([wait = gate.future, value](const CancelFlag& cancelled) {
    wait.wait();
    check_cancelled(cancelled);
    return value;
  });
}

TEST(Future, GivesTheValue) {
  auto future = start_request<std::string>([](const CancelFlag&) { return std::string("seven"); });
  EXPECT_EQ(future.get(), "seven");
  EXPECT_TRUE(future.done());
}

TEST(Future, WaitsNoLongerThanTold) {
  Gate gate;
  auto future = gated(gate, 7);
  EXPECT_FALSE(future.done());
  EXPECT_FALSE(future.wait_for(1ms));
  gate.open();
  EXPECT_TRUE(future.wait_for(std::chrono::nanoseconds::max()));
  EXPECT_EQ(future.get(), 7);
}

TEST(Future, RethrowsTheFirstErrorEachTime) {
  auto future =
      start_request<int>([](const CancelFlag&) -> int { throw Error(ErrorCode::io, "disk", 5); });
  for (int i = 0; i < 2; ++i) {
    try {
      future.get();
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io);
      EXPECT_EQ(e.os_error(), 5);
    }
  }
}

TEST(Future, TellsOutOfMemoryInItsOwnWords) {
  auto future = start_request<int>([](const CancelFlag&) -> int { throw std::bad_alloc(); });
  try {
    future.get();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::out_of_memory);
  }
}

TEST(Future, CancelReachesTheWork) {
  Gate gate;
  auto future = gated(gate, 7);
  EXPECT_TRUE(future.cancel());
  gate.open();
  try {
    future.get();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  EXPECT_FALSE(future.cancel());
}

TEST(Future, CallsBackOnce) {
  Gate gate;
  auto future = gated(gate, 7);
  std::atomic<int> calls{0};
  future.on_done([&] { ++calls; });
  future.on_done([] { throw 1; });  // must not keep the next from its call
  std::promise<void> last;
  future.on_done([&] { last.set_value(); });
  EXPECT_EQ(calls, 0);
  gate.open();
  last.get_future().wait();
  EXPECT_EQ(calls, 1);
  future.on_done([&] { calls += 10; });
  EXPECT_EQ(calls, 11);
}

TEST(Future, LetsGoOfWhatTheWorkHeldBeforeItIsDone) {
  auto kept = std::make_shared<int>(1);
  std::weak_ptr<int> watch = kept;
  auto future = start_request<int>([kept = std::move(kept)](const CancelFlag&) { return *kept; });
  EXPECT_EQ(future.get(), 1);
  EXPECT_TRUE(watch.expired());
}

TEST(Future, IsNotValidInAChildOfFork) {
  HEADRACE_SKIP_WHERE_CHILDREN_START_NO_THREADS();
  Gate gate;
  auto future = std::make_unique<Future<int>>(gated(gate, 7));
  std::thread waiter([&] { future->wait_for(10s); });
  std::this_thread::sleep_for(20ms);  // the waiter is inside when the process forks
  const pid_t child = fork();
  if (child == 0) {
    int status = 1;
    try {
      future->get();
    } catch (const Error& e) {
      status = e.code() == ErrorCode::cancelled ? 0 : 2;
    }
    future.reset();
    if (start_request<int>([](const CancelFlag&) { return 3; }).get() != 3) status = 3;
    _exit(status);
  }
  int status = -1;
  for (int i = 0; i < 500 && waitpid(child, &status, WNOHANG) == 0; ++i)
    std::this_thread::sleep_for(10ms);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  gate.open();
  waiter.join();
  EXPECT_EQ(future->get(), 7);
}

}  // namespace
}  // namespace headrace
