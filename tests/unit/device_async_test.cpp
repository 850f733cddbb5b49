// What a device is given and has not done when the call returns: its order with the caller's
// stream, how long memory lives, errors. Streams of the device that stands on the host can be held
// up, so that nothing is done before a test says so; what needs no holding runs on the GPU, too.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "conformance/codec_kit.h"
#include "device/backend.h"
#include "headrace/codec.h"
#include "headrace/config.h"
#include "headrace/dlpack.h"
#include "simt/host_queue.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using test::devices;
using test::error_of;
using Bytes = std::vector<std::byte>;

const Device kSimt = Device::simt();

TensorView view_of(const void* data, std::size_t nbytes, Device device = Device::cpu()) {
  return {const_cast<void*>(data), {static_cast<std::int64_t>(nbytes)}, {}, DType::uint8, device};
}

bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(2ms);
  return condition();
}

class DeviceAsync : public test::DeviceTest {
 protected:
  void SetUp() override {
    test::DeviceTest::SetUp();
    set_slab(1 << 20);
    for (const std::size_t n : {4000, 400, 70000}) {
      plain_.push_back(kit::smooth_floats(n, static_cast<unsigned>(n)));
      nbytes_.push_back(n);
    }
    encoded_ = encode("gzip");
    used_ = HostMemory::get().used();
  }
  // What work kept goes soon after it is done.
  void TearDown() override {
    EXPECT_TRUE(comes_true([&] { return HostMemory::get().used() == used_; }));
    test::DeviceTest::TearDown();
  }

  static void set_slab(std::size_t nbytes) {
    Config changed = config();
    changed.device_slab_nbytes = nbytes;
    set_config(changed);
  }

  std::vector<Bytes> encode(const char* codec) const {
    const std::vector<std::span<const std::byte>> sources(plain_.begin(), plain_.end());
    return encode_batch(codec, sources);
  }

  static std::vector<TensorView> views(const std::vector<Bytes>& all, Device device) {
    std::vector<TensorView> result;
    for (const Bytes& bytes : all) result.push_back(view_of(bytes.data(), bytes.size(), device));
    return result;
  }

  std::vector<Tensor> queue_new(Stream stream,
                                std::shared_ptr<void> kept = nullptr,
                                Device device = kSimt,
                                const char* codec = "gzip") const {
    return decode_batch_async(codec,
                              views(encoded_, Device::cpu()),
                              nbytes_,
                              std::move(kept),
                              {.device = device, .stream = stream});
  }

  std::vector<Bytes> plain_, encoded_;
  std::vector<std::size_t> nbytes_;
  long used_ = 0;
};

// Work that a caller gives his stream.
HostQueue work_on(HostStream& stream) { return HostQueue(0, stream.work()); }

TEST_F(DeviceAsync, ComesBetweenWhatTheStreamHadAndWhatItGetsLater) {
  HostStream stream;
  std::vector<Bytes> out, seen;
  for (const Bytes& bytes : plain_) {
    out.emplace_back(bytes.size());
    seen.emplace_back(bytes.size());
  }
  stream.hold();
  // The stream still uses the outputs, and the inputs come to be on it.
  std::vector<Bytes> inputs;
  for (std::size_t i = 0; i < out.size(); ++i) {
    inputs.emplace_back(encoded_[i].size());
    work_on(stream).copy(inputs[i].data(), encoded_[i].data(), encoded_[i].size());
    work_on(stream).fill(out[i].data(), 3, out[i].size());
  }
  const Ready ready =
      decode_batch_async("gzip",
                         views(inputs, kSimt),
                         views(out, kSimt),
                         nullptr,
                         {.device = kSimt, .stream = Stream::from(stream.handle())});
  for (std::size_t i = 0; i < out.size(); ++i)
    work_on(stream).copy(seen[i].data(), out[i].data(), out[i].size());
  EXPECT_FALSE(ready.done());
  EXPECT_FALSE(ready.wait_for(20ms));
  EXPECT_EQ(ready.stream().raw(), stream.handle());
  for (const Bytes& bytes : out) EXPECT_EQ(bytes, Bytes(bytes.size()));
  stream.release();
  work_on(stream).synchronize();
  EXPECT_EQ(seen, plain_);
  ready.wait();
  EXPECT_TRUE(ready.done());
  EXPECT_EQ(ready.stream().raw(), nullptr);
}

TEST_F(DeviceAsync, SpanWaitsForTheElements) {
  HostStream stream;
  stream.hold();
  std::vector<Tensor> results = queue_new(Stream::from(stream.handle()));
  // What is wrong with the call is told at once.
  error_of([&] { static_cast<void>(results[2].span<float>()); }, ErrorCode::invalid_argument);
  auto call = std::async(std::launch::async, [&] { return results[2].span<std::uint8_t>(); });
  EXPECT_EQ(call.wait_for(50ms), std::future_status::timeout);
  stream.release();
  const auto bytes = std::as_bytes(call.get());
  EXPECT_TRUE(results[2].ready().done());
  EXPECT_EQ(Bytes(bytes.begin(), bytes.end()), plain_[2]);
}

TEST_F(DeviceAsync, HasAnotherStreamWait) {
  HostStream stream, other;
  stream.hold();
  const std::vector<Tensor> results = queue_new(Stream::from(stream.handle()));
  Bytes seen(plain_[2].size());
  results[2].ready().before(Stream::from(other.handle()));
  work_on(other).copy(seen.data(), results[2].data(), seen.size());
  EXPECT_FALSE(results[2].ready().done());
  stream.release();
  work_on(other).synchronize();
  EXPECT_EQ(seen, plain_[2]);
}

TEST_F(DeviceAsync, GivesWhatTheSynchronousCallGives) {
  for (const Device device : devices()) {
    for (const char* codec : {"gzip", "zstd", "lz4", "crc32c"}) {
      encoded_ = encode(codec);
      for (const std::size_t slab : {std::size_t{512}, std::size_t{1} << 20}) {
        set_slab(slab);
        const std::vector<Tensor> results = queue_new({}, nullptr, device, codec);
        for (std::size_t i = 0; i < results.size(); ++i) {
          results[i].ready().wait();
          EXPECT_EQ(bytes_of(results[i]), plain_[i]) << codec << ' ' << device.to_string();
        }
      }
    }
  }
}

TEST_F(DeviceAsync, IsDoneAtOnceWhereTheHostWorks) {
  HostStream stream;
  const BatchOptions by_host{
      .device = kSimt, .stream = Stream::from(stream.handle()), .implementation = "libdeflate"};
  const auto inputs = views(encoded_, Device::cpu());
  const auto results = decode_batch_async("gzip", inputs, nbytes_, nullptr, by_host);
  std::vector<Bytes> out;
  for (const std::size_t n : nbytes_) out.emplace_back(n);
  const BatchOptions to_host{.device = kSimt};
  const Ready ready =
      decode_batch_async("gzip", inputs, views(out, Device::cpu()), nullptr, to_host);
  EXPECT_TRUE(ready.done());
  EXPECT_EQ(out, plain_);
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(results[i].ready().done());
    EXPECT_EQ(bytes_of(results[i]), plain_[i]);
  }
}

// A batch of any size takes the pinned memory of three slices.
TEST_F(DeviceAsync, WaitsWhereABatchIsLarge) {
  set_slab(100);
  plain_.assign(6, kit::smooth_floats(4000, 1));
  nbytes_.assign(6, 4000);
  encoded_ = encode("gzip");
  HostStream stream;
  stream.hold();
  auto call =
      std::async(std::launch::async, [&] { return queue_new(Stream::from(stream.handle())); });
  EXPECT_EQ(call.wait_for(50ms), std::future_status::timeout);
  stream.release();
  const std::vector<Tensor> results = call.get();
  results[5].ready().wait();
  EXPECT_EQ(bytes_of(results[5]), plain_[5]);
}

TEST_F(DeviceAsync, KeepsWhatTheWorkNeedsWhoeverDropsIt) {
  HostStream stream;
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = kept;
  stream.hold();
  std::vector<Tensor> results = queue_new(Stream::from(stream.handle()), std::move(kept));
  encoded_.clear();  // was copied
  results.clear();
  EXPECT_FALSE(watch.expired());
  EXPECT_GT(HostMemory::get().used(), used_);
  stream.release();
  EXPECT_TRUE(comes_true([&] { return watch.expired(); }));
}

TEST_F(DeviceAsync, ResultsLiveUntilTheStreamIsDoneWithThem) {
  HostStream stream;
  Bytes seen(plain_[2].size());
  {
    std::vector<Tensor> results = queue_new(Stream::from(stream.handle()));
    results[2].ready().wait();
    stream.hold();
    work_on(stream).copy(seen.data(), results[2].data(), seen.size());
  }
  EXPECT_GT(HostMemory::get().used(), used_);
  stream.release();
  work_on(stream).synchronize();
  EXPECT_EQ(seen, plain_[2]);
}

TEST_F(DeviceAsync, ErrorsComeAtTheNextUse) {
  for (const Device device : devices()) {
    encoded_ = encode("gzip");
    encoded_[1][encoded_[1].size() / 2] ^= std::byte{0xff};
    std::vector<Tensor> results = queue_new({}, nullptr, device);
    const Ready& ready = results[0].ready();
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(error_of([&] { ready.wait(); }, ErrorCode::corrupt),
                  testing::StartsWith("input 1: codec gzip"));
    }
    error_of([&] { ready.before({}); }, ErrorCode::corrupt);
    error_of([&] { ready.future().get(); }, ErrorCode::corrupt);
    if (device.type != Device::Type::cuda) {
      error_of([&] { static_cast<void>(results[2].span<std::uint8_t>()); }, ErrorCode::corrupt);
    }
    error_of([&] { std::move(results[2]).to_dlpack(); }, ErrorCode::corrupt);
  }
  // What sizes tell is thrown at once.
  error_of(
      [&] {
        encoded_ = encode("crc32c");
        encoded_[0].pop_back();
        queue_new({}, nullptr, kSimt, "crc32c");
      },
      ErrorCode::corrupt);
}

TEST_F(DeviceAsync, ErrorsThatNobodyAskedForAreTold) {
  std::atomic<int> lost{0};
  set_lost_error_handler([&](const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    ++lost;
  });
  encoded_[1][encoded_[1].size() / 2] ^= std::byte{0xff};
  HostStream stream;
  for (const bool asks : {true, false}) {
    stream.hold();
    std::vector<Tensor> results = queue_new(Stream::from(stream.handle()));
    if (asks) {
      stream.release();
      error_of([&] { results[2].ready().wait(); }, ErrorCode::corrupt);
      results.clear();
      EXPECT_EQ(lost, 0);
    } else {
      results.clear();
      EXPECT_EQ(lost, 0);
      stream.release();
      EXPECT_TRUE(comes_true([&] { return lost == 1; }));
    }
  }
  set_lost_error_handler(nullptr);
}

TEST_F(DeviceAsync, CallsBack) {
  HostStream stream;
  stream.hold();
  const std::vector<Tensor> results = queue_new(Stream::from(stream.handle()));
  std::atomic<bool> called{false};
  Future<Unit> future = results[0].ready().future();
  future.on_done([&] { called = true; });
  EXPECT_FALSE(future.cancel());
  EXPECT_FALSE(called);
  stream.release();
  EXPECT_TRUE(comes_true([&] { return called.load(); }));
  future.get();
  EXPECT_TRUE(Ready().future().done());
}

const test::Layout kLayout{"gzip", {30, 20}, {8, 8}, {}, {codec::bytes(), codec::gzip()}};

TEST_F(DeviceAsync, AReadIsBehindWhatTheStreamHadWhenItWasCalled) {
  const Array a = test::filled(memory_store(), kLayout);
  const Bytes wanted = bytes_of(a.read());
  HostStream stream;
  stream.hold();
  Bytes out(wanted.size());
  const TensorView target{out.data(), {30, 20}, {}, DType::float32, kSimt};
  work_on(stream).fill(out.data(), 3, out.size());
  Future<Unit> future =
      a.to(kSimt).read_into_async({}, target, nullptr, {.stream = Stream::from(stream.handle())});
  // Later work may wait for the read: it is nothing that the read waits for.
  std::atomic<bool> in_time{false};
  work_on(stream).delay([&, copy = future]() mutable { in_time = copy.wait_for(10s); });
  EXPECT_FALSE(future.wait_for(50ms));
  stream.release();
  future.get();
  EXPECT_EQ(out, wanted);
  work_on(stream).synchronize();
  EXPECT_TRUE(in_time);
}

TEST_F(DeviceAsync, RefusesAStreamThatIsBeingCaptured) {
  const Array a = test::filled(memory_store(), kLayout).to(kSimt);
  HostStream stream, held;
  const Stream given = Stream::from(stream.handle());
  held.hold();
  const std::vector<Tensor> under_way = queue_new(Stream::from(held.handle()));
  stream.capture(true);
  Bytes out(30 * 20 * 4);
  const TensorView target{out.data(), {30, 20}, {}, DType::float32, kSimt};
  const ReadOptions options{.stream = given};
  const std::function<void()> calls[] = {
      [&] { queue_new(given); },
      [&] {
        decode_batch(
            "gzip", views(encoded_, Device::cpu()), nbytes_, {.device = kSimt, .stream = given});
      },
      [&] { a.read({}, options); },
      [&] { a.read_async({}, options); },
      [&] { a.read_into({}, target, options); },
      [&] { a.read_into_async({}, target, nullptr, options); },
      [&] { under_way[0].ready().before(given); },
  };
  for (const auto& call : calls)
    EXPECT_THAT(error_of(call, ErrorCode::unsupported), testing::HasSubstr("captured into a CUDA"));
  held.release();
  under_way[0].ready().wait();
  under_way[0].ready().before(given);  // nothing is left to wait for
  stream.capture(false);
  EXPECT_EQ(a.read({}, options).nbytes(), out.size());
}

TEST_F(DeviceAsync, NewMemoryThatGoesDuringACaptureGoesBehindWhatTheStreamHad) {
  HostStream stream;
  const auto owner = std::make_shared<int>();
  std::vector<Tensor> results = decode_batch_async(
      "gzip",
      views(encoded_, Device::cpu()),
      nbytes_,
      nullptr,
      {.device = kSimt, .stream = Stream::from(stream.handle()), .stream_owner = owner});
  results[0].ready().wait();
  const auto is_kept = [&] { return HostMemory::get().used() > used_; };
  std::vector<Bytes> out;
  for (const std::size_t n : nbytes_) out.emplace_back(n);
  const auto read_to_default_stream = [&] {
    decode_batch("gzip", views(encoded_, Device::cpu()), views(out, kSimt), {.device = kSimt});
  };
  // A program's kernel that still reads them, and a capture that begins while it does.
  stream.hold();
  stream.capture(true);
  results.clear();
  read_to_default_stream();
  EXPECT_TRUE(is_kept());
  EXPECT_GT(owner.use_count(), 1);
  stream.capture(false);
  std::thread next(read_to_default_stream);
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(is_kept());
  stream.release();
  next.join();
  EXPECT_TRUE(comes_true([&] { return HostMemory::get().used() == used_; }));
  EXPECT_EQ(owner.use_count(), 1);
}

}  // namespace
}  // namespace headrace
