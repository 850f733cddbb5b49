// Queued work of a device where things go wrong: devices that fail, threads that come second,
// callers' code that blocks, forks, errors in the call that queues it.

#include "device/device_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "base/thread_pool.h"
#include "conformance/codec_kit.h"
#include "device/backend.h"
#include "engine/device/buffers.h"
#include "headrace/codec.h"
#include "simt/host_queue.h"
#include "support/fork.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::error_of;

const Device kSimt = Device::simt();

bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 2500 && !condition(); ++i) std::this_thread::sleep_for(2ms);
  return condition();
}

struct AtEnd {
  explicit AtEnd(std::function<void()> f) : function(std::move(f)) {}
  ~AtEnd() { function(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
  std::function<void()> function;
};

// Work of a queue behind what the stream was given.
Ready work_behind(HostStream& stream, std::function<void()> check) {
  auto queue = std::make_shared<HostQueue>();
  HostQueue given(0, stream.work());
  queue->wait_for(given);
  Queue& used = *queue;
  return Ready(detail::DeviceWork::start(
      kSimt, used, Stream::from(stream.handle()), [queue, check = std::move(check)] { check(); }));
}

class DeviceWorkTest : public test::DeviceTest {
 protected:
  void SetUp() override {
    test::DeviceTest::SetUp();
    for (const std::size_t n : {4000, 400}) {
      plain_.push_back(kit::smooth_floats(n, static_cast<unsigned>(n)));
      nbytes_.push_back(n);
    }
    const std::vector<std::span<const std::byte>> sources(plain_.begin(), plain_.end());
    encoded_ = encode_batch("gzip", sources);
    used_ = HostMemory::get().used();
  }
  // What work kept goes soon after it is done.
  void TearDown() override {
    EXPECT_TRUE(comes_true([&] { return HostMemory::get().used() == used_; }));
    test::DeviceTest::TearDown();
  }

  std::vector<TensorView> inputs(Device of_second = Device::cpu()) const {
    std::vector<TensorView> views;
    for (const auto& frame : encoded_) {
      views.push_back({const_cast<std::byte*>(frame.data()),
                       {static_cast<std::int64_t>(frame.size())},
                       {},
                       DType::uint8,
                       views.empty() ? Device::cpu() : of_second});
    }
    return views;
  }
  std::vector<Tensor> queue_on(HostStream& stream,
                               std::shared_ptr<void> kept,
                               Device of_second = Device::cpu()) const {
    return decode_batch_async("gzip",
                              inputs(of_second),
                              nbytes_,
                              std::move(kept),
                              {.device = kSimt, .stream = Stream::from(stream.handle())});
  }

  std::vector<std::vector<std::byte>> plain_, encoded_;
  std::vector<std::size_t> nbytes_;
  long used_ = 0;
};

TEST_F(DeviceWorkTest, ASecondComerWaitsNoLongerThanItsTime) {
  HostStream stream;
  std::promise<void> entered, leave;
  std::atomic<bool> in_time{false};
  const Ready ready = work_behind(stream, [&] {
    entered.set_value();
    in_time = leave.get_future().wait_for(10s) == std::future_status::ready;
  });
  entered.get_future().get();
  EXPECT_FALSE(ready.wait_for(20ms));
  EXPECT_FALSE(ready.done());
  leave.set_value();
  ready.wait();
  EXPECT_TRUE(in_time);
}

TEST_F(DeviceWorkTest, WhatIsLetGoMayWaitForTheWork) {
  HostStream stream;
  stream.hold();
  auto ready = std::make_shared<Ready>();
  std::promise<bool> waited;
  auto kept = std::make_shared<AtEnd>([&waited, ready] { waited.set_value(ready->wait_for(10s)); });
  *ready = work_behind(stream, [kept] {});
  kept.reset();
  stream.release();
  ASSERT_TRUE(waited.get_future().get());
}

TEST_F(DeviceWorkTest, ADeviceThatFailsEndsTheWork) {
  HostStream stream;
  stream.hold();
  HostQueue(0, stream.work()).delay([] { throw Error(ErrorCode::device, "it failed"); });
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = kept;
  std::vector<Tensor> results = queue_on(stream, std::move(kept));
  const Ready ready = results[1].ready();
  std::atomic<bool> called{false};
  ready.future().on_done([&] { called = true; });
  stream.release();
  EXPECT_TRUE(comes_true([&] { return called.load(); }));
  EXPECT_TRUE(ready.done());
  EXPECT_TRUE(comes_true([&] { return watch.expired(); }));
  EXPECT_THAT(error_of([&] { ready.wait(); }, ErrorCode::device), testing::HasSubstr("it failed"));
}

TEST_F(DeviceWorkTest, ErrorsAreThoseOfTheLibrary) {
  HostStream stream;
  error_of([&] { work_behind(stream, [] { throw std::bad_alloc(); }).wait(); },
           ErrorCode::out_of_memory);
  error_of([&] { work_behind(stream, [] { throw std::runtime_error("other"); }).wait(); },
           ErrorCode::device);
  error_of([&] { work_behind(stream, [] { throw 1; }).wait(); }, ErrorCode::device);
}

TEST_F(DeviceWorkTest, EndsWhileThePoolIsBusy) {
  std::promise<void> leave;
  const std::shared_future<void> left = leave.get_future().share();
  for (int i = 0; i < thread_count() + 4; ++i) run_async([left] { left.wait(); });
  HostStream stream;
  stream.hold();
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = kept;
  const std::vector<Tensor> results = queue_on(stream, std::move(kept));
  std::atomic<bool> called{false};
  results[0].ready().future().on_done([&] { called = true; });
  stream.release();
  EXPECT_TRUE(comes_true([&] { return called && watch.expired(); }));
  leave.set_value();
}

// Behind the last look at the stream the call itself must not be able to fail without a wait.
TEST_F(DeviceWorkTest, KeepsInputsUntilTheDeviceIsDoneWhenTheCallFails) {
  HostStream stream;
  stream.hold();
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = kept;
  // When results are allocated the work's queue is behind the stream already.
  set_allocator(kSimt,
                {.allocate =
                     [&stream](std::size_t nbytes, Stream) {
                       stream.capture(true);
                       return std::aligned_alloc(256, (nbytes + 255) / 256 * 256);
                     },
                 .free = [](void* memory, std::size_t, Stream) { std::free(memory); }});
  auto call = std::async(std::launch::async, [&, kept = std::move(kept)]() mutable {
    error_of([&] { queue_on(stream, std::move(kept)); }, ErrorCode::unsupported);
  });
  EXPECT_EQ(call.wait_for(50ms), std::future_status::timeout);
  EXPECT_FALSE(watch.expired());
  stream.release();
  call.get();
  EXPECT_TRUE(watch.expired());
  set_allocator(kSimt, {});
}

TEST_F(DeviceWorkTest, AllocationsFailBesideWorkUnderWay) {
  bool failed = true;
  for (int nth = 1; failed; ++nth) {
    HostStream stream;
    stream.hold();
    HostMemory::get().fail(nth);
    auto call = std::async(std::launch::async, [&] {
      try {
        for (const Tensor& result : queue_on(stream, nullptr, kSimt)) result.ready().wait();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      }
    });
    call.wait_for(20ms);
    failed = HostMemory::get().failed();
    HostMemory::get().fail(0);
    stream.release();
    call.get();
    EXPECT_TRUE(comes_true([&] { return HostMemory::get().used() == used_; })) << nth;
    ASSERT_LT(nth, 100);
  }
}

TEST_F(DeviceWorkTest, PinnedCopiesStayUntilTheyAreUploadedWhateverFails) {
  class Watched final : public test::SimtDevice {
   public:
    std::shared_ptr<std::byte> allocate_pinned(int index, std::size_t nbytes) override {
      auto block = SimtDevice::allocate_pinned(index, nbytes);
      auto* const data = block.get();
      return {data, [this, block = std::move(block)](std::byte*) {
                if (is_held) too_early = true;
              }};
    }
    std::atomic<bool> is_held{true}, too_early{false};
  };
  const BatchBuffer buffers[] = {{encoded_[0].data(), encoded_[0].size(), false},
                                 {encoded_[1].data(), encoded_[1].size(), true}};
  bool failed = true;
  for (int nth = 1; failed; ++nth) {
    Watched device;
    HostStream stream;
    stream.hold();
    auto call = std::async(std::launch::async, [&] {
      HostQueue queue, given(0, stream.work());
      queue.wait_for(given);
      HostMemory::get().fail(nth);
      try {
        const Sources sources = copy_sources(queue, device, 0, buffers);
        queue.synchronize();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      }
      failed = HostMemory::get().failed();
      HostMemory::get().fail(0);
    });
    call.wait_for(20ms);
    device.is_held = false;
    stream.release();
    call.get();
    EXPECT_FALSE(device.too_early) << nth;
    ASSERT_LT(nth, 100);
  }
}

TEST_F(DeviceWorkTest, WhatFailedWorkKeptGoesWithoutTheLockOfTheQueue) {
  HostStream stream;
  std::promise<void> told;
  std::promise<bool> in_time;
  stream.hold();
  HostQueue queue(0, stream.work());
  queue.delay([] { throw Error(ErrorCode::device, "it failed"); });
  auto kept = std::make_shared<AtEnd>([&] {
    stream.work()->put_so_far();
    in_time.set_value(told.get_future().wait_for(10s) == std::future_status::ready);
  });
  queue.delay([kept] {});
  kept.reset();
  stream.release();
  error_of([&] { queue.synchronize(); }, ErrorCode::device);
  told.set_value();
  EXPECT_TRUE(in_time.get_future().get());
}

TEST_F(DeviceWorkTest, AChildOfForkIsToldAndHasADeviceOfItsOwn) {
  HEADRACE_SKIP_WHERE_MALLOC_DOES_NOT_SURVIVE_FORK();
  HostStream stream;
  stream.hold();
  std::vector<Tensor> results = queue_on(stream, nullptr);
  // The default stream's thread, which a child lacks, is at work, too.
  std::promise<void> leave;
  const auto standard = backend(kSimt.type).wrap_stream(0, nullptr);
  static_cast<HostQueue&>(*standard).delay([left = leave.get_future().share()] { left.wait(); });
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // a deadlock ends as a signal
    bool good = !results[0].ready().done();
    const auto is_refused = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.code() == ErrorCode::cancelled;
      }
      return false;
    };
    Future<Unit> future = results[0].ready().future();
    good = good && is_refused([&] { future.on_done([] {}); });
    good = good && is_refused([&] { future.get(); });
    good = good && is_refused([&] { results[0].ready().before({}); });
    results.clear();
    HostStream own;
    const std::vector<Tensor> fresh = queue_on(own, nullptr);
    std::atomic<bool> called{false};
    fresh[0].ready().future().on_done([&] { called = true; });
    good = good && comes_true([&] { return called.load(); });
    const auto now = decode_batch("gzip", inputs(), nbytes_, {.device = kSimt});
    good = good && test::bytes_of(now[0]) == plain_[0] && test::bytes_of(fresh[0]) == plain_[0];
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  leave.set_value();
  stream.release();
  results[0].ready().wait();
  EXPECT_EQ(test::bytes_of(results[0]), plain_[0]);
}

}  // namespace
}  // namespace headrace
