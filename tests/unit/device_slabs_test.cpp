// Reads to a device in many slabs, which several threads fetch side by side and out of order, and
// reads of few large chunks, of which each thread fetches a part.

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "conformance/inject.h"
#include "conformance/random_selection.h"
#include "simt/host_queue.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using test::bytes_of;
using test::devices;
using test::error_of;
using test::filled;
using test::Layout;

const CodecSpec little = codec::bytes();
const CodecSpec shuffle{"numcodecs.shuffle", R"({"elementsize": 4})"};

class DeviceSlabs : public test::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    Config changed = config();
    changed.threads = 6;
    set_config(changed);
  }
  static void set_slab(std::size_t nbytes) {
    Config changed = config();
    changed.device_slab_nbytes = nbytes;
    set_config(changed);
  }
  // 256 chunks of 256 bytes.
  static Layout small_chunks(std::vector<CodecSpec> codecs, Shape shards = {}) {
    return {"", {128, 128}, {8, 8}, std::move(shards), std::move(codecs)};
  }
};

TEST_F(DeviceSlabs, ManyOfThemAreWhatTheHostReads) {
  const std::vector<std::vector<CodecSpec>> chains = {
      {little}, {little, codec::zstd(1)}, {codec::bytes("big"), shuffle, codec::zstd(1)}};
  for (const auto& codecs : chains) {
    for (const Shape& shards : {Shape{}, Shape{32, 32}}) {
      const Array a = filled(memory_store(), small_chunks(codecs, shards));
      const std::vector<std::byte> expected = bytes_of(a.read());
      for (const Device device : devices()) {
        const Array there = a.to(device);
        for (const std::size_t slab : {std::size_t{1}, std::size_t{700}, std::size_t{9000}}) {
          set_slab(slab);
          EXPECT_EQ(bytes_of(there.read()), expected) << slab;
          std::vector<std::byte> other;
          std::thread beside([&] { other = bytes_of(there.read()); });
          EXPECT_EQ(bytes_of(there.read()), expected) << slab;
          beside.join();
          EXPECT_EQ(other, expected) << slab;
        }
      }
    }
  }
}

// Whatever the others are doing, the error names the chunk, and the next read is whole.
TEST_F(DeviceSlabs, AChunkInTheMiddleMayBeBad) {
  for (const auto& codecs : {std::vector{little}, std::vector{little, codec::zstd(1)}}) {
    auto faults = std::make_shared<test::Faults>();
    const Store store(test::make_faulty_store(memory_store().shared_driver(), faults));
    const Array a = filled(store, small_chunks(codecs));
    const std::vector<std::byte> expected = bytes_of(a.read());
    for (const Device device : devices()) {
      const Array there = a.to(device);
      for (const std::size_t slab : {std::size_t{1}, std::size_t{700}, std::size_t{9000}}) {
        set_slab(slab);
        for (const char* key : {"a/c/0/0", "a/c/5/7", "a/c/10/15"}) {
          const std::string named = std::string("[read] a chunk ") + (key + 2);
          faults->shorten(key, 5);
          EXPECT_NE(error_of([&] { there.read(); }, ErrorCode::corrupt).find(named),
                    std::string::npos);
          faults->clear();
          if (codecs.size() > 1) {
            faults->flip_byte(key, 0);
            EXPECT_NE(error_of([&] { there.read(); }, ErrorCode::corrupt).find(named),
                      std::string::npos);
            faults->clear();
          }
        }
        for (const long nth : {1, 40, 150}) {
          faults->fail_read(nth, EIO);
          EXPECT_NE(error_of([&] { there.read(); }, ErrorCode::io).find("[read] a chunk c/"),
                    std::string::npos);
          faults->clear();
        }
        EXPECT_EQ(bytes_of(there.read()), expected) << slab;
      }
    }
  }
}

TEST_F(DeviceSlabs, AChunkInTheMiddleMayBeMissing) {
  const Store store = memory_store();
  const Array a = filled(store, small_chunks({little, codec::zstd(1)}));
  for (const char* key : {"a/c/0/0", "a/c/5/7", "a/c/5/8", "a/c/10/15"}) store.driver().erase(key);
  for (const Device device : devices()) {
    for (const std::size_t slab : {std::size_t{1}, std::size_t{700}, std::size_t{9000}}) {
      set_slab(slab);
      EXPECT_EQ(bytes_of(a.to(device).read()), bytes_of(a.read())) << slab;
    }
  }
}

struct Interrupt {};

TEST_F(DeviceSlabs, EndWithWhatThePollThrows) {
  auto faults = std::make_shared<test::Faults>();
  const Store store(test::make_faulty_store(memory_store().shared_driver(), faults));
  const Array a = filled(store, small_chunks({little, codec::zstd(1)}));
  faults->delay_reads_ms(5);
  ReadOptions options;
  options.poll = [] { throw Interrupt(); };
  EXPECT_THROW(a.to(Device::simt()).read({}, options), Interrupt);
}

TEST_F(DeviceSlabs, AnyAllocationMayFail) {
  const Array a = filled(memory_store(), small_chunks({little, codec::zstd(1)}));
  const std::vector<std::byte> expected = bytes_of(a.read());
  const Array there = a.to(Device::simt());
  set_slab(700);
  there.read();
  const long used = HostMemory::get().used();
  for (const long nth : {1, 2, 3, 5, 8, 20, 50, 100}) {
    HostMemory::get().fail(nth);
    error_of([&] { there.read(); }, ErrorCode::out_of_memory);
    HostMemory::get().fail(0);
    EXPECT_EQ(HostMemory::get().used(), used) << nth;
  }
  EXPECT_EQ(bytes_of(there.read()), expected);
}

// 4 MiB, which threads share.
TEST_F(DeviceSlabs, PartsOfALargeChunkAreReadSideBySide) {
  const CodecSpec blosc = codec::blosc("lz4", 1);
  for (const auto& codecs :
       {std::vector{little}, std::vector{little, shuffle}, std::vector{little, blosc}}) {
    for (const Shape& shards : {Shape{}, Shape{1024, 1024}}) {
      auto counts = std::make_shared<test::StoreCounts>();
      auto faults = std::make_shared<test::Faults>();
      const Store store(test::make_counting_store(
          test::make_faulty_store(memory_store().shared_driver(), faults), counts));
      const Array a = filled(store, {"", {1024, 1024}, {1024, 1024}, shards, codecs});
      const std::vector<std::byte> expected = bytes_of(a.read());
      for (const Device device : devices()) {
        const Array there = a.to(device);
        there.read();
        counts->reset();
        EXPECT_EQ(bytes_of(there.read()), expected);
        EXPECT_GE(counts->range_reads, 2);
        for (const long nth : {1, 2}) {
          faults->fail_read(nth, EIO);
          EXPECT_NE(error_of([&] { there.read(); }, ErrorCode::io).find("[read] a chunk c/0/0"),
                    std::string::npos);
          faults->clear();
        }
        EXPECT_EQ(bytes_of(there.read()), expected);
      }
    }
  }
}

}  // namespace
}  // namespace headrace
