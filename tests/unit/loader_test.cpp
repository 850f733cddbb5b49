// The loader from C++: what threads do to each other. What batches hold is compared with NumPy in
// tests/python/test_loader.py.

#include "headrace/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "conformance/config_guard.h"
#include "conformance/inject.h"
#include "unit/device_kit.h"

namespace headrace::loader {
namespace {

using test::bytes_of;
using test::error_of;

constexpr std::int64_t kSteps = 60;

// Each element is its step.
Array steps_array(const Store& store = memory_store()) {
  CreateOptions options;
  options.shape = {kSteps, 3, 5};
  options.dtype = DType::float32;
  options.chunks = {4, 3, 3};
  options.codecs = {codec::bytes(), codec::zstd(1, true)};
  const Array array = create_array(store, "x", options);
  Tensor data = Tensor::empty(options.shape, DType::float32);
  for (std::int64_t i = 0; i < kSteps * 15; ++i)
    static_cast<float*>(data.data())[i] = static_cast<float>(i / 15);
  array.write({}, data.view());
  return array;
}

Loader make_loader(const Array& array, Options options = {}, std::optional<DType> dtype = {}) {
  options.batch_size = 4;
  options.window = 2;
  options.drop_last = false;
  return Loader({{"x", array, dtype}}, options);
}

std::vector<std::byte> epoch_bytes(Loader& loader) {
  std::vector<std::byte> bytes;
  while (const auto batch = loader.next()) {
    const auto more = bytes_of(batch->tensors[0]);
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

TEST(Loader, TellsWhatItGives) {
  const Loader loader = make_loader(steps_array(), {}, DType::bfloat16);
  EXPECT_EQ(loader.samples(), kSteps - 1);
  EXPECT_EQ(loader.batches(), (kSteps - 1 + 3) / 4);
  EXPECT_EQ(loader.names(), std::vector<std::string>{"x"});
  EXPECT_EQ(loader.batch_shape(0), (Shape{4, 2, 3, 5}));
  EXPECT_EQ(loader.batch_dtype(0), DType::bfloat16);
  EXPECT_EQ(loader.order_id().size(), 16u);
}

TEST(Loader, GivesTheSamplesOfItsOrder) {
  Loader loader = make_loader(steps_array());
  std::int64_t position = 0;
  while (const auto batch = loader.next()) {
    const auto* values = static_cast<const float*>(batch->tensors[0].data());
    for (std::int64_t i = 0; i < batch->samples; ++i) {
      const auto start = static_cast<float>(loader.sample(0, position++).step);
      for (int k = 0; k < 30; ++k)
        ASSERT_EQ(values[30 * i + k], start + static_cast<float>(k / 15));
    }
    EXPECT_EQ(loader.position().samples, position);
  }
  EXPECT_EQ(position, loader.samples());
  EXPECT_EQ(loader.position().epoch, 1);
}

TEST(Loader, MixesSourcesOnEveryDevice) {
  std::vector<Source> sources;
  for (const double std : {1.0, -1.0})  // the second's steps are negative
    sources.push_back({{{"x", steps_array(), DType::float64, {0}, {std}}}, {{10, 20}}});
  std::vector<Device> places = test::devices();
  places.push_back(Device::cpu());
  for (const Device device : places) {
    Options options{.batch_size = 4, .exclude = {{30, 40}}, .device = device};
    options.weights = {3, 1};
    options.samples_per_epoch = 80;
    Loader loader(sources, options);
    EXPECT_EQ(loader.samples(), 80);
    std::int64_t position = 0, of_second = 0;
    while (const auto batch = loader.next()) {
      const auto bytes = bytes_of(batch->tensors[0]);
      const auto* values = reinterpret_cast<const double*>(bytes.data());
      for (std::int64_t i = 0; i < batch->samples; ++i) {
        const SampleOrigin origin = loader.sample(0, position++);
        ASSERT_TRUE(origin.step / 10 != 1 && origin.step / 10 != 3) << origin.step;
        ASSERT_EQ(values[15 * i], static_cast<double>(origin.step * (1 - 2 * origin.source)));
        of_second += origin.source;
      }
    }
    EXPECT_EQ(position, 80);
    EXPECT_NEAR(static_cast<double>(of_second), 20, 3);
  }
}

TEST(Loader, SeeksWhileBatchesAreMade) {
  const Array array = steps_array();
  Loader whole = make_loader(array);
  const auto wanted = epoch_bytes(whole);
  Loader loader = make_loader(array, {.prefetch = 3});
  for (std::int64_t samples = 0; samples < loader.samples(); samples += 4) {
    loader.seek({0, 40});
    ASSERT_TRUE(loader.next());
    loader.seek({0, samples});
    const auto begin = wanted.begin() + samples * 30 * 4;
    EXPECT_EQ(epoch_bytes(loader), std::vector<std::byte>(begin, wanted.end()));
  }
}

TEST(Loader, ClosesAtAnyTimeAndStartsAnew) {
  const Array array = steps_array();
  Loader whole = make_loader(array);
  const auto wanted = epoch_bytes(whole);
  for (int batches = 0; batches < 8; ++batches) {
    Loader loader = make_loader(array, {.prefetch = 2});
    std::vector<std::byte> bytes;
    for (int i = 0; i < batches; ++i) {
      const auto batch = bytes_of(loader.next()->tensors[0]);
      bytes.insert(bytes.end(), batch.begin(), batch.end());
    }
    loader.close();
    const auto rest = epoch_bytes(loader);
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    EXPECT_EQ(bytes, wanted);
  }
}

TEST(Loader, IsAskedForStatisticsWhileItWorks) {
  Loader loader = make_loader(steps_array());
  std::atomic<bool> done{false};
  std::thread asking([&] {
    while (!done) EXPECT_GE(loader.stats().samples, 0);
  });
  for (int epoch = 0; epoch < 5; ++epoch) epoch_bytes(loader);
  done = true;
  asking.join();
  EXPECT_EQ(loader.stats().samples, 5 * loader.samples());
  EXPECT_LE(loader.stats().read_amplification, 1);
}

TEST(Loader, RefusesASecondThreadAtATime) {
  Loader loader = make_loader(steps_array());
  std::atomic<int> taken{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        try {
          loader.next();
          ++taken;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
          ++refused;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken + refused, 800);
  EXPECT_GT(taken, 0);
}

struct FaultyArray {
  std::shared_ptr<test::Faults> faults = std::make_shared<test::Faults>();
  Array array = steps_array(Store(test::make_faulty_store(memory_store().shared_driver(), faults)));
};

TEST(Loader, StopsWaitingWhenPollThrowsAndLosesNothing) {
  const test::ConfigGuard guard;
  test::set_threads(2);  // so that the caller reads more than one chunk of a batch
  const FaultyArray slow;
  Loader whole = make_loader(slow.array);
  const auto wanted = epoch_bytes(whole);
  for (const std::int64_t prefetch : {0, 2}) {
    slow.faults->delay_reads_ms(100);
    Loader loader = make_loader(slow.array, {.prefetch = prefetch});
    struct Interrupt {};
    EXPECT_THROW(loader.next([] { throw Interrupt{}; }), Interrupt);
    EXPECT_EQ(loader.position().samples, 0);
    slow.faults->clear();
    EXPECT_EQ(epoch_bytes(loader), wanted);
  }
}

TEST(Loader, TriesABatchAgainAfterAnError) {
  const test::ConfigGuard guard;
  test::set_threads(2);  // so that what fails is read for this batch, not for a later one
  const FaultyArray failing;
  Loader whole = make_loader(failing.array);
  const auto wanted = epoch_bytes(whole);
  for (const std::int64_t prefetch : {0, 2}) {
    Loader loader = make_loader(failing.array, {.prefetch = prefetch});
    std::vector<std::byte> bytes;
    int errors = 0;
    failing.faults->fail_read(3, EIO);
    for (;;) {
      try {
        const auto batch = loader.next();
        if (!batch) break;
        const auto more = bytes_of(batch->tensors[0]);
        bytes.insert(bytes.end(), more.begin(), more.end());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::io);
        failing.faults->fail_read(20, EIO);  // more than a batch reads
        ++errors;
      }
    }
    if (prefetch == 0) {  // else some may meet what is read ahead
      EXPECT_GT(errors, 1);
    }
    EXPECT_EQ(bytes, wanted);
  }
}

TEST(Loader, ReadsForLaterBatchesWithThreadsThatAreIdle) {
  const test::ConfigGuard guard;
  test::set_threads(4);
  Loader loader = make_loader(steps_array(), {.shuffle = Shuffle::none, .prefetch = 0});
  loader.next();
  EXPECT_EQ(loader.stats().chunks_decoded, 4);
  loader.next();  // needs two more
  EXPECT_EQ(loader.stats().chunks_decoded, 8);
}

TEST(Loader, BudgetOfAFewChunksGivesTheSameOnEveryDevice) {
  const Array array = steps_array();
  Loader whole = make_loader(array, {.shuffle = Shuffle::global}, DType::float64);
  const auto wanted = epoch_bytes(whole);
  std::vector<Device> places = test::devices();
  places.push_back(Device::cpu());
  for (const Device device : places) {
    Options options{.shuffle = Shuffle::global, .device = device, .prefetch = 1};
    options.memory_budget = 1;
    const std::string error =
        error_of([&] { make_loader(array, options, DType::float64); }, ErrorCode::out_of_memory);
    EXPECT_NE(error.find("memory_budget: 3 batches of 960 bytes"), std::string::npos) << error;
    options.memory_budget = 3 * 960 + 144 * 20;  // a quarter of it to read
    Loader loader = make_loader(array, options, DType::float64);
    EXPECT_EQ(epoch_bytes(loader), wanted) << device.to_string();
  }
}

}  // namespace
}  // namespace headrace::loader
