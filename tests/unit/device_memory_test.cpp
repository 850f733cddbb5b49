// Any allocation of a device's memory fails, one after the other: the error says so, nothing that
// was allocated stays, and the next try is good.

#include <gtest/gtest.h>

#include <functional>

#include "headrace/codec.h"
#include "headrace/loader.h"
#include "simt/host_queue.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using test::bytes_of;
using test::filled;
using test::Layout;

using Bytes = std::vector<std::byte>;

const CodecSpec little = codec::bytes();
const CodecSpec shuffle{"numcodecs.shuffle", R"({"elementsize": 4})"};

class DeviceMemory : public test::DeviceTest {
 protected:
  void TearDown() override {
    HostMemory::get().fail(0);
    DeviceTest::TearDown();
  }

  // Gives the number of allocations that were let fail. `may_recover`: by another try of its own.
  static long expect_clean(const std::function<Bytes()>& operation, bool may_recover = false) {
    HostMemory& memory = HostMemory::get();
    const Bytes expected = operation();
    const long before = memory.used();
    for (long nth = 1;; ++nth) {
      memory.fail(nth);
      Bytes found;
      bool threw = false;
      try {
        found = operation();
      } catch (const Error& error) {
        threw = true;
        EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << nth << ": " << error.what();
      }
      const bool failed = memory.failed();
      memory.fail(0);
      EXPECT_EQ(memory.used(), before) << "allocation " << nth << " failed";
      if (!may_recover) {
        EXPECT_EQ(threw, failed) << nth;
      }
      if (!threw) {
        EXPECT_EQ(found, expected) << nth;
      }
      if (!failed) return nth - 1;
      if (nth % 7 == 1) {
        EXPECT_EQ(operation(), expected) << "after allocation " << nth;
      }
      if (testing::Test::HasFailure()) return nth;
    }
  }
};

TEST_F(DeviceMemory, FailsCleanlyInAnyReadToADevice) {
  const std::vector<CodecSpec> chains[] = {{little},
                                           {little, codec::zstd(1), codec::crc32c()},
                                           {codec::bytes("big"), shuffle, codec::lz4()},
                                           {little, codec::blosc("lz4", 5, "shuffle")},
                                           {little, codec::gzip(1)}};
  for (const auto& codecs : chains) {
    for (const Shape& shards : {Shape{}, Shape{12, 12}}) {
      const Array a =
          filled(memory_store(), {"", {13, 10}, {6, 6}, shards, codecs}).to(Device::simt());
      EXPECT_GT(expect_clean([&] { return bytes_of(a.read()); }), 3);
      const Selection part{slice(3, 12, 2), slice(1, 9)};
      EXPECT_GT(expect_clean([&] { return bytes_of(a.read(part)); }), 3);
    }
  }
}

TEST_F(DeviceMemory, FailsCleanlyInAnyWriteFromADevice) {
  const Layout layout{"", {13, 10}, {6, 6}, {}, {little, codec::zstd(1)}};
  Layout sharded = layout, plain = layout;
  sharded.shards = {12, 12};
  plain.codecs = {little};
  for (const Layout& each : {layout, sharded, plain}) {
    const Array a = filled(memory_store(), each);
    const Tensor data = a.to(Device::simt()).read();
    EXPECT_GT(expect_clean([&] {
                a.write({}, data.view());
                return bytes_of(a.read());
              }),
              2);
  }
}

TEST_F(DeviceMemory, FailsCleanlyInAnyBatch) {
  const Bytes plain(40000, std::byte{3});
  const BatchOptions on_device{.device = Device::simt(), .implementation = "headrace-simt"};
  for (const char* codec : {"zstd", "lz4"}) {
    const std::span<const std::byte> one(plain);
    const Bytes encoded = encode_batch(codec, std::span(&one, 1)).at(0);
    const TensorView input{const_cast<std::byte*>(encoded.data()),
                           {static_cast<std::int64_t>(encoded.size())},
                           {},
                           DType::uint8,
                           Device::cpu()};
    const std::size_t nbytes = plain.size();
    EXPECT_GT(
        expect_clean([&] {
          return bytes_of(
              decode_batch(codec, std::span(&input, 1), std::span(&nbytes, 1), on_device).at(0));
        }),
        3);
    const Tensor there = std::move(
        decode_batch(codec, std::span(&input, 1), std::span(&nbytes, 1), on_device).at(0));
    EXPECT_GT(expect_clean([&] {
                return bytes_of(encode_batch(codec, std::span(&there.view(), 1), on_device).at(0));
              }),
              3);
  }
}

// It reads a chunk by itself again when it could not be read with others.
TEST_F(DeviceMemory, FailsCleanlyInALoader) {
  const Array array = filled(memory_store(), {"", {12, 5}, {6, 5}, {}, {little, codec::zstd(1)}});
  for (const std::int64_t prefetch : {0, 2}) {
    const auto epoch = [&] {
      loader::Options options;
      options.batch_size = 4;
      options.device = Device::simt();
      options.prefetch = prefetch;
      loader::Loader loader({{"x", array, {}}}, options);
      Bytes all;
      while (const auto batch = loader.next()) {
        const Bytes more = bytes_of(batch->tensors[0]);
        all.insert(all.end(), more.begin(), more.end());
      }
      return all;
    };
    EXPECT_GT(expect_clean(epoch, true), 4);
  }
}

TEST_F(DeviceMemory, FailsCleanlyForATensor) {
  EXPECT_EQ(expect_clean([] {
              Tensor x = Tensor::empty({30}, DType::uint8, Device::simt());
              std::memset(x.data(), 1, 30);
              return bytes_of(x);
            }),
            1);
}

}  // namespace
}  // namespace headrace
