// Who waits for a store across a network, and wants it no more.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "base/wait_latch.h"
#include "conformance/error_code.h"
#include "engine/request/async.h"
#include "headrace/error.h"
#include "headrace/interrupt.h"
#include "headrace/store.h"
#include "store/cloud/renewed.h"
#include "store/flights.h"
#include "store/http/driver.h"
#include "support/http_server.h"
#include "support/toy_protocol.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::ObjectServer;
using test::ServerAnswer;
using test::ServerRequest;
using Clock = std::chrono::steady_clock;

constexpr auto kSoon = 5s;  // far less than the server takes

struct Interrupted {};

class Interrupt : public testing::Test {
 protected:
  // Answers nothing but the beginnings of uploads.
  Interrupt() {
    objects_.put("k", "x");
    objects_.set_fault([](const ServerRequest& request, ServerAnswer& answer) {
      if (request.query != "begin") answer.delay = 30s;
    });
    HttpOptions options;
    options.idle_timeout = 60s;
    store_ = make_http_driver(
        test::make_toy_protocol(objects_.url(), {.max_put_nbytes = 10, .part_nbytes = 10}),
        make_http_client(options),
        HttpAccess::read_write);
  }

  // That the call ends soon by what the poll throws.
  void expect_interrupted(const char* name, const std::function<void()>& call) {
    const auto begin = Clock::now();
    int polls = 0;
    const InterruptScope scope([&polls] {
      if (++polls == 2) throw Interrupted();
    });
    EXPECT_THROW(call(), Interrupted) << name;
    EXPECT_LT(Clock::now() - begin, kSoon) << name;
    EXPECT_GE(polls, 2) << name;
  }

  ObjectServer objects_;
  std::shared_ptr<HttpDriver> store_;
};

TEST_F(Interrupt, EndsWhateverWaits) {
  Buffer buffer;
  expect_interrupted("get", [&] { store_->get("k", buffer); });
  expect_interrupted("open", [&] { store_->open("k"); });
  expect_interrupted("exists", [&] { store_->exists("k"); });
  expect_interrupted("list", [&] { store_->list(""); });
  expect_interrupted("list_dir", [&] { store_->list_dir(""); });
  expect_interrupted("set", [&] { store_->set("k", bytes_of("short")); });
  expect_interrupted("erase", [&] { store_->erase("k"); });
  expect_interrupted("erase_prefix", [&] { store_->erase_prefix(""); });
  // And leaves nothing of an upload.
  objects_.set_fault([](const ServerRequest& request, ServerAnswer& answer) {
    if (!request.parameter("part").empty()) answer.delay = 30s;
  });
  expect_interrupted("upload", [&] { store_->set("k", bytes_of("longer than ten")); });
  EXPECT_EQ(objects_.uploads(), 0u);
}

TEST(WaitLatch, IsInterruptedMoreThanOnce) {
  WaitLatch latch(1);
  int polls = 0, given_up = 0;
  const InterruptScope scope([&] {
    if (++polls == 3) latch.count_down();  // as a second signal's handler may
    throw polls;
  });
  try {
    latch.wait([&] { ++given_up; });
    ADD_FAILURE();
  } catch (int first) {
    EXPECT_EQ(first, 1);
  }
  EXPECT_EQ(polls, 3);
  EXPECT_EQ(given_up, 1);
}

// Each of which is over before it would be looked at.
TEST_F(Interrupt, IsHeardAmongShortWaits) {
  objects_.set_fault([](const ServerRequest&, ServerAnswer& answer) { answer.delay = 5ms; });
  Buffer buffer;
  for (const bool lists : {false, true}) {
    const auto begin = Clock::now();
    int polls = 0;
    const InterruptScope scope([&polls] {
      if (++polls == 4) throw Interrupted();
    });
    const auto call = [&] {
      while (Clock::now() - begin < kSoon)
        lists ? void(store_->list("")) : void(store_->get("k", buffer));
    };
    EXPECT_THROW(call(), Interrupted);
    // No more often than the interval says, as small reads are many.
    EXPECT_GE(Clock::now() - begin, 300ms);
  }
}

// An upload one part of which fails while another is stuck.
TEST_F(Interrupt, IsHeardWhereAnErrorEndsAnUpload) {
  std::atomic<bool> failed{false};
  objects_.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
    if (request.query == "begin") return;
    if (request.parameter("part").empty()) {
      answer.delay = 2s;  // the upload is aborted
    } else if (!failed.exchange(true)) {
      answer = {.status = 403};
    } else {
      answer.delay = 30s;
    }
  });
  expect_interrupted("upload", [&] { store_->set("k", bytes_of("longer than ten, and more")); });
}

TEST_F(Interrupt, EndsACopyOfObjects) {
  objects_.put("more", "y");
  objects_.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
    if (!request.path.empty()) answer.delay = 30s;
  });
  const Store from(store_);
  const Store to = memory_store();
  expect_interrupted("copy", [&] { copy_objects(from, "", to, ""); });
  // What one thread's error ends, others do not wait for.
  CopyOptions options;
  options.progress = [](const CopyProgress&) { throw Interrupted(); };
  const auto begin = Clock::now();
  EXPECT_THROW(copy_objects(from, "", to, "", options), Interrupted);
  EXPECT_LT(Clock::now() - begin, kSoon);
}

TEST_F(Interrupt, EndsTheWaitForWhatAnotherThreadFetches) {
  Flights flights;
  Flights::Claim claim(flights);
  ASSERT_TRUE(claim.add("k"));
  expect_interrupted("flight", [&] { flights.wait("k"); });
  claim.release();
  flights.wait("k");
}

TEST_F(Interrupt, OfTheCallerEndsItsHelpers) {
  expect_interrupted("parallel_for", [&] {
    parallel_for(
        4,
        [&](std::size_t) {
          Buffer buffer;
          store_->get("k", buffer);
        },
        4);
  });
  // Where the caller does not wait for the store itself, too.
  const auto caller = std::this_thread::get_id();
  const int before = objects_.server().requests();
  expect_interrupted("helpers", [&] {
    parallel_for(
        4,
        [&](std::size_t) {
          if (std::this_thread::get_id() == caller) {
            while (objects_.server().requests() == before) std::this_thread::sleep_for(1ms);
            return;
          }
          Buffer buffer;
          store_->get("k", buffer);
        },
        4);
  });
}

TEST_F(Interrupt, ReachesACallWithinItsScopeOnly) {
  objects_.set_fault(nullptr);
  int polls = 0;
  Buffer buffer;
  {
    const InterruptScope scope([&] { ++polls; });
    {
      const InterruptScope none({});
      objects_.set_fault([](const ServerRequest&, ServerAnswer& answer) { answer.delay = 300ms; });
      EXPECT_TRUE(store_->get("k", buffer));
      EXPECT_EQ(polls, 0);
    }
    EXPECT_TRUE(store_->get("k", buffer));
    EXPECT_GE(polls, 1);
  }
  const int before = polls;
  EXPECT_TRUE(store_->get("k", buffer));
  EXPECT_EQ(polls, before);
}

TEST_F(Interrupt, ACancelledRequestWaitsForNoStore) {
  Future<Unit> future = start_request<Unit>([&](const CancelFlag&) {
    Buffer buffer;
    store_->get("k", buffer);
    return Unit{};
  });
  while (objects_.server().requests() == 0) std::this_thread::sleep_for(1ms);
  const auto begin = Clock::now();
  future.cancel();
  EXPECT_EQ(code_of([&] { future.get(); }), ErrorCode::cancelled);
  EXPECT_LT(Clock::now() - begin, kSoon);
}

// Who fetches for all and is interrupted leaves it to another.
TEST(Renewed, AnInterruptIsNoFailureOfOthers) {
  std::atomic<int> fetches{0};
  std::atomic<bool> waits{false};
  Renewed<int> renewed([&]() -> Renewed<int>::Fetched {
    if (fetches++ == 0) {
      while (!waits) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(20ms);
      (*current_interrupt())();
    }
    return {std::make_shared<const int>(7)};
  });
  std::thread first([&] {
    const InterruptScope scope([] { throw Interrupted(); });
    EXPECT_THROW(renewed.get(), Interrupted);
  });
  while (fetches == 0) std::this_thread::sleep_for(1ms);
  std::thread second([&] { EXPECT_EQ(*renewed.get(), 7); });
  std::thread impatient([&] {
    const InterruptScope scope([&] {
      waits = true;
      throw Interrupted();
    });
    EXPECT_THROW(renewed.get(), Interrupted);
  });
  impatient.join();
  first.join();
  second.join();
  EXPECT_EQ(fetches, 2);
}

}  // namespace
}  // namespace headrace
