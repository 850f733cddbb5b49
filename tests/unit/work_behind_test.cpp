// Work that one thread makes and others do behind it: each task once, few bytes at a time, with and
// without other threads, and an error anywhere ends it for all.

#include "engine/device/work_behind.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "headrace/config.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr std::size_t kTasks = 500;
constexpr std::size_t kNbytes = 10;  // of a task

class WorkBehindTest : public testing::Test {
 protected:
  WorkBehindTest() : done_(kTasks) {}
  void SetUp() override {
    Config many = before_;
    many.threads = 6;
    set_config(many);
  }
  void TearDown() override { set_config(before_); }

  class Task final : public WorkBehind::Task {
   public:
    Task(WorkBehindTest& test, std::size_t number) : test_(test), number_(number) {}
    ~Task() override { ++test_.destroyed_; }
    void run() override {
      test_.at_task_(number_);
      ++test_.done_[number_];
      test_.open_ -= kNbytes;
    }

   private:
    WorkBehindTest& test_;
    const std::size_t number_;
  };

  void add(WorkBehind& work, std::size_t number) {
    ++made_;
    const std::size_t open = open_ += kNbytes;
    if (open > most_open_) most_open_ = open;
    work.add(std::make_unique<Task>(*this, number), kNbytes);
  }

  void run(std::size_t threads, std::size_t most_nbytes) {
    Request request(options_, &cancel_);
    WorkBehind work(request, most_nbytes);
    work_ = &work;
    work.run(threads, [&] {
      for (std::size_t i = 0; i < kTasks; ++i) {
        at_make_(i);
        add(work, i);
      }
    });
  }

  void expect_all_done_once() const {
    for (const std::atomic<int>& each : done_) EXPECT_EQ(each, 1);
  }

  std::function<void(std::size_t)> at_make_ = [](std::size_t) {};
  std::function<void(std::size_t)> at_task_ = [](std::size_t) {};
  ReadOptions options_;
  std::atomic<bool> cancel_{false};
  std::vector<std::atomic<int>> done_;
  std::atomic<std::size_t> made_{0};
  std::atomic<std::size_t> destroyed_{0};
  std::atomic<std::size_t> open_{0};  // bytes that wait or are under way
  std::size_t most_open_ = 0;
  WorkBehind* work_ = nullptr;

 private:
  const Config before_ = config();
};

TEST_F(WorkBehindTest, EachIsDoneOnceByAnyNumberOfThreads) {
  for (const std::size_t threads : {1, 2, 6, 50}) {
    for (const std::size_t most : {std::size_t{0}, 3 * kNbytes, SIZE_MAX}) {
      for (std::atomic<int>& each : done_) each = 0;
      most_open_ = 0;
      run(threads, most);
      expect_all_done_once();
      if (most < SIZE_MAX) {
        EXPECT_LE(most_open_, most + kNbytes) << threads;
      }
    }
  }
  EXPECT_EQ(destroyed_, 12 * kTasks);
}

TEST_F(WorkBehindTest, OthersWorkWhileMoreIsMade) {
  // The last to be made waits for the first to be done, which its thread does not do.
  at_make_ = [&](std::size_t i) {
    while (i + 1 == kTasks && done_[0] == 0) std::this_thread::yield();
  };
  run(2, SIZE_MAX);
  expect_all_done_once();
}

TEST_F(WorkBehindTest, DrainedAllIsDone) {
  at_task_ = [](std::size_t i) {
    if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  at_make_ = [&](std::size_t i) {
    if (i % 100 != 99) return;
    work_->drain();
    for (std::size_t j = 0; j < i; ++j) EXPECT_EQ(done_[j], 1);
  };
  for (const std::size_t threads : {1, 6}) {
    for (std::atomic<int>& each : done_) each = 0;
    run(threads, SIZE_MAX);
  }
  expect_all_done_once();
}

TEST_F(WorkBehindTest, AnErrorEndsItForAll) {
  for (const std::size_t threads : {1, 2, 6}) {
    for (const std::size_t most : {std::size_t{0}, SIZE_MAX}) {
      made_ = destroyed_ = 0;
      at_make_ = [](std::size_t) { std::this_thread::sleep_for(std::chrono::microseconds(20)); };
      at_task_ = [](std::size_t i) {
        if (i == 7) throw Error(ErrorCode::io, "the seventh");
      };
      try {
        run(threads, most);
        FAIL();
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "the seventh");
      }
      EXPECT_EQ(destroyed_, made_);
      at_task_ = [](std::size_t) {};
      at_make_ = [](std::size_t i) {
        if (i == 9) throw std::runtime_error("made no more");
      };
      EXPECT_THROW(run(threads, most), std::runtime_error);
    }
  }
}

TEST_F(WorkBehindTest, WhatHasFailedIsNotWaitedFor) {
  // Task 0 fails when make() waits for it, or for room.
  at_task_ = [&](std::size_t i) {
    if (i == 0) {
      while (made_ < 2) std::this_thread::yield();
      throw Error(ErrorCode::io, "the first");
    }
  };
  EXPECT_THROW(run(2, kNbytes), Error);
  made_ = 0;
  at_make_ = [&](std::size_t i) {
    if (i == 3) work_->drain();
  };
  EXPECT_THROW(run(2, SIZE_MAX), Error);
}

TEST_F(WorkBehindTest, EndsWhenTheRequestIsCancelled) {
  at_task_ = [&](std::size_t i) {
    if (i == 20) cancel_ = true;
  };
  at_make_ = [&](std::size_t i) {
    while (i == 30 && !cancel_) std::this_thread::yield();
    while (i == 31) {  // as who waits for the device
      Request(options_, &cancel_).check();
      std::this_thread::yield();
    }
  };
  try {
    run(6, SIZE_MAX);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
}

}  // namespace
}  // namespace headrace
