// Writes from devices, compared with writes from the host: every layout and codec, strided and
// broadcast data, partial chunks, shards, chunks of fill value, slabs smaller than the array, and
// who encodes.

#include <gtest/gtest.h>

#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_getFrameHeader
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <random>

#include "conformance/inject.h"
#include "conformance/random_selection.h"
#include "device/backend.h"
#include "headrace/array.h"
#include "headrace/config.h"
#include "simt/host_queue.h"
#include "store/store.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using test::create;
using test::devices;
using test::error_of;
using test::Layout;

std::string implementation_on(Device device) {
  return std::string(backend(device.type).own_name());
}

using DeviceWrite = test::DeviceTest;

std::vector<Layout> layouts() {
  const CodecSpec little = codec::bytes();
  const CodecSpec big = codec::bytes("big");
  const CodecSpec shuffle{"numcodecs.shuffle", R"({"elementsize": 4})"};
  const CodecSpec bits{"numcodecs.imagecodecs_bitshuffle", R"({"itemsize": 4, "blocksize": 8})"};
  const auto nested =
      codec::sharding({2, 2}, {little, codec::zstd(1)}, {little, codec::crc32c()}, "start");
  return {
      {"zstd", {13, 17}, {4, 5}, {}, {little, codec::zstd(3, true)}},
      {"zstd_checksums",
       {13, 17},
       {4, 5},
       {},
       {little, codec::zstd(1), codec::crc32c(), {"numcodecs.adler32", "{}"}}},
      {"zstd_of_shuffled_big", {13, 17}, {4, 5}, {}, {big, shuffle, codec::zstd(1)}},
      {"lz4", {13, 17}, {4, 5}, {}, {little, codec::lz4()}},
      {"lz4_of_bits", {13, 17}, {5, 9}, {}, {little, bits, codec::lz4(), codec::crc32c()}},
      {"blosc", {130, 170}, {64, 128}, {}, {little, codec::blosc("lz4", 5, "shuffle", 0, 4096)}},
      {"blosc_zstd", {13, 17}, {4, 5}, {}, {little, codec::blosc("zstd", 1, "bitshuffle")}},
      {"transposed", {9, 7, 5}, {4, 3, 2}, {}, {codec::transpose({2, 0, 1}), big, codec::zstd()}},
      {"complex", {13, 17}, {4, 5}, {}, {big, codec::lz4()}, DType::complex128},
      {"bytes", {300}, {130}, {}, {little, codec::zstd(0)}, DType::uint8},
      {"twice_compressed", {13, 17}, {4, 5}, {}, {little, codec::zstd(1), codec::gzip(1)}},
      {"shards", {13, 17}, {2, 3}, {6, 9}, {little, codec::zstd(1)}},
      {"shards_shuffle_crc",
       {13, 17},
       {2, 3},
       {6, 9},
       {little, shuffle, codec::lz4(), codec::crc32c()}},
      {"v2", {13, 17}, {4, 5}, {}, {little, codec::zstd(1)}, DType::float32, 2},
      {"one_chunk", {5}, {9}, {}, {little, shuffle, codec::zstd(1)}},
      {"scalar", {}, {}, {}, {big, codec::zstd(1)}},
      {"empty", {0, 4}, {2, 2}, {}, {little, codec::zstd(1)}},
      // The host encodes these.
      {"plain", {13, 17}, {4, 5}, {}, {big}},
      {"shards_plain", {13, 17}, {2, 3}, {6, 9}, {little}},
      {"nested_shards", {21, 17}, {4, 4}, {12, 8}, {nested}},
      {"gzip", {13, 17}, {13, 6}, {}, {little, codec::gzip(5)}},
      {"zstd_19", {13, 17}, {4, 5}, {}, {little, codec::zstd(19)}},
      {"delta",
       {13, 17},
       {4, 5},
       {},
       {{"numcodecs.delta", R"({"dtype": "<f4"})"}, little, codec::zstd(1)}},
      {"rounded",
       {13, 17},
       {4, 5},
       {},
       {{"bitround", R"({"keepbits": 9})"}, little, codec::zstd(1)}},
      {"crc_inside", {13, 17}, {4, 5}, {}, {little, codec::crc32c(), codec::zstd(1)}},
  };
}

Layout layout_named(const std::string& name) {
  for (Layout& layout : layouts()) {
    if (name == layout.name) return layout;
  }
  throw std::logic_error("no layout " + name);
}

// The same bytes in the memory of the host and of a device, strides of any order and sign with gaps
// between elements, or of 0.
class Data {
 public:
  Data(Device device, const Shape& shape, DType dtype, std::mt19937& random) {
    const auto itemsize = static_cast<std::int64_t>(dtype.itemsize());
    std::vector<std::size_t> order(shape.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    Shape strides(shape.size());
    std::int64_t extent = itemsize, first = 0;
    for (const std::size_t d : order) {
      if (random() % 6 == 0) continue;
      strides[d] = extent * static_cast<std::int64_t>(1 + random() % 2);
      extent = strides[d] * std::max<std::int64_t>(shape[d], 1);
      if (random() % 2 == 0) continue;
      first += strides[d] * std::max<std::int64_t>(shape[d] - 1, 0);
      strides[d] = -strides[d];
    }
    bytes_.resize(static_cast<std::size_t>(extent));
    // Whole elements of the fill value often.
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      bytes_[i] = static_cast<std::byte>(random() % 8 ? 7 : random() % 4);
    queue_ = backend(device.type).make_queue(device.index);
    memory_ = backend(device.type).allocate(*queue_, bytes_.size());
    queue_->upload(memory_.get(), bytes_.data(), bytes_.size());
    queue_->synchronize();
    there = {static_cast<std::byte*>(memory_.get()) + first, shape, strides, dtype, device};
    here = {bytes_.data() + first, shape, strides, dtype, Device::cpu()};
  }

  TensorView there, here;

 private:
  std::vector<std::byte> bytes_;
  std::unique_ptr<Queue> queue_;
  std::shared_ptr<void> memory_;
};

std::vector<std::byte> host_bytes(const Array& a) {
  const Tensor tensor = a.read();
  const auto* data = static_cast<const std::byte*>(tensor.data());
  return {data, data + tensor.nbytes()};
}

std::vector<std::string> keys(const Store& store) {
  std::vector<std::string> found = store.driver().list("");
  std::ranges::sort(found);
  return found;
}

class DeviceWriteLayouts : public DeviceWrite, public testing::WithParamInterface<Layout> {};

TEST_P(DeviceWriteLayouts, StoresWhatAWriteFromTheHostStores) {
  for (const Device device : devices()) {
    std::mt19937 random(1);
    for (const bool write_empty_chunks : {false, true}) {
      const Store from_device = memory_store(), from_host = memory_store();
      const Array a = create(from_device, GetParam(), write_empty_chunks);
      const Array b = create(from_host, GetParam(), write_empty_chunks);
      for (int i = 0; i < 12; ++i) {
        const Selection selection =
            i % 4 == 0 ? Selection{} : test::random_selection(GetParam().shape, random);
        const Data data(device, a.result_shape(selection), GetParam().dtype, random);
        a.write(selection, data.there);
        b.write(selection, data.here);
        ASSERT_EQ(host_bytes(a), host_bytes(b)) << device.to_string() << " " << i;
        ASSERT_EQ(keys(from_device), keys(from_host)) << device.to_string() << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         DeviceWriteLayouts,
                         testing::ValuesIn(layouts()),
                         [](const auto& layout) { return std::string(layout.param.name); });

TEST_F(DeviceWrite, LeavesOutChunksOfFillValue) {
  for (const char* name : {"zstd", "lz4", "blosc_zstd", "shards"}) {
    for (const Device device : devices()) {
      const Store store = memory_store();
      const Array a = create(store, layout_named(name));
      std::mt19937 random(1);
      a.write({}, Data(device, a.shape(), a.dtype(), random).there);
      EXPECT_GT(a.nchunks_initialized(), 0) << name;
      const std::vector<std::byte> fill(4, std::byte{7});
      const auto queue = backend(device.type).make_queue(device.index);
      const auto element = backend(device.type).allocate(*queue, 4);
      queue->upload(element.get(), fill.data(), 4);
      queue->synchronize();
      a.write({}, {element.get(), {}, {}, a.dtype(), device});
      EXPECT_EQ(a.nchunks_initialized(), 0) << name;
      EXPECT_TRUE(store.driver().list("a/c/").empty()) << name;
    }
  }
}

TEST_F(DeviceWrite, TakesPointsAndAppends) {
  for (const Device device : devices()) {
    std::mt19937 random(1);
    const Array a = create(memory_store(), layout_named("zstd"));
    const Array b = create(memory_store(), layout_named("zstd"));
    const Selection points =
        Selection::coordinate({IndexArray{{12, 0, 5, 0}, {4}}, IndexArray{{16, 0, 3, 0}, {4}}});
    const Data some(device, {4}, a.dtype(), random), more(device, {5, 17}, a.dtype(), random);
    a.write(points, some.there);
    b.write(points, some.here);
    a.append(more.there);
    b.append(more.here);
    EXPECT_EQ(host_bytes(a), host_bytes(b)) << device.to_string();
  }
}

std::vector<std::byte> stored(const Store& store, const std::string& key) {
  Buffer bytes;
  EXPECT_TRUE(store.driver().get(key, bytes)) << key;
  return {bytes.data(), bytes.data() + bytes.size()};
}

// An array of one chunk of zstd, written from a device.
std::vector<std::byte> written(Device device, const CodecSpec& zstd, const std::string& by) {
  const Store store = memory_store();
  const Array a =
      create(store, {"chosen", {50000}, {50000}, {}, {codec::bytes(), zstd}, DType::int32});
  std::vector<std::int32_t> values(50000);
  std::iota(values.begin(), values.end(), 0);
  const auto queue = backend(device.type).make_queue(device.index);
  const auto memory = backend(device.type).allocate(*queue, 200000);
  queue->upload(memory.get(), values.data(), 200000);
  queue->synchronize();
  WriteOptions options;
  if (!by.empty()) options.implementations["zstd"] = by;
  a.write({}, {memory.get(), {50000}, {}, DType::int32, device}, options);
  return stored(store, "a/c/0");
}

// libzstd says a window of the content's size; kernels, one of their blocks.
bool device_made(const std::vector<std::byte>& frame) {
  ZSTD_frameHeader header;
  EXPECT_EQ(ZSTD_getFrameHeader(&header, frame.data(), frame.size()), 0u);
  EXPECT_EQ(header.frameContentSize, 200000u);
  return header.windowSize == 128 * 1024;
}

TEST_F(DeviceWrite, EncodesWhereTheLevelAndTheCallerSay) {
  for (const Device device : devices()) {
    const std::string own = implementation_on(device);
    EXPECT_TRUE(device_made(written(device, codec::zstd(0), "")));
    EXPECT_TRUE(device_made(written(device, codec::zstd(3), "")));
    EXPECT_FALSE(device_made(written(device, codec::zstd(4), "")));
    EXPECT_TRUE(device_made(written(device, codec::zstd(4), own)));
    EXPECT_FALSE(device_made(written(device, codec::zstd(1), "libzstd")));
    Config large = config();
    large.device_min_decode_nbytes = 200001;
    set_config(large);
    EXPECT_FALSE(device_made(written(device, codec::zstd(1), "")));
    EXPECT_TRUE(device_made(written(device, codec::zstd(1), own)));
    large.device_min_decode_nbytes = 0;
    set_config(large);
  }
}

TEST_F(DeviceWrite, MakesBlocksAsSmallAsItIsTold) {
  for (const Device device : devices()) {
    const auto large = written(device, codec::zstd(1), "");
    Config small = config();
    small.device_zstd_block_nbytes = 16 * 1024;
    set_config(small);
    const auto frame = written(device, codec::zstd(1), "");
    small.device_zstd_block_nbytes = 128 * 1024;
    set_config(small);
    EXPECT_NE(frame, large);
    // Magic, descriptor, window, content's size; then the size of the first block.
    ASSERT_GT(frame.size(), 13u);
    std::uint32_t block = 0;
    std::memcpy(&block, frame.data() + 10, 3);
    EXPECT_LT(block >> 3, 16 * 1024u);
    EXPECT_EQ(block & 1, 0u);
  }
  Config wrong = config();
  wrong.device_zstd_block_nbytes = 1000;
  EXPECT_THROW(set_config(wrong), Error);
}

TEST_F(DeviceWrite, RefusesAnImplementationThatCannotEncode) {
  std::mt19937 random(1);
  for (const Device device : devices()) {
    const Array a = create(memory_store(), layout_named("gzip"));
    const Data data(device, a.shape(), a.dtype(), random);
    WriteOptions options;
    options.implementations["gzip"] = implementation_on(device);
    const std::string message =
        error_of([&] { a.write({}, data.there, options); }, ErrorCode::unsupported);
    EXPECT_NE(message.find("cannot encode the chunks: codec gzip"), std::string::npos) << message;
  }
}

TEST_F(DeviceWrite, RefusesNvcompWhichOnlyDecodes) {
  std::mt19937 random(1);
  for (const Device device : devices()) {
    const Store store = memory_store();
    const Array a = create(store, layout_named("zstd"));
    const Data data(device, a.shape(), a.dtype(), random);
    const Array handle = a.with_implementations({{"zstd", "nvcomp"}});
    const std::string message =
        error_of([&] { handle.write({}, data.there); }, ErrorCode::unsupported);
    EXPECT_NE(message.find("[write] a: implementation nvcomp only decodes zstd"), std::string::npos)
        << message;
    EXPECT_EQ(a.nchunks_initialized(), 0);
    WriteOptions options;
    options.implementations["zstd"] = "libzstd";
    handle.write({}, data.there, options);
    const Array from_host = create(memory_store(), layout_named("zstd"));
    from_host.write({}, data.here);
    EXPECT_EQ(host_bytes(a), host_bytes(from_host));
  }
}

TEST_F(DeviceWrite, NamesTheChunkThatCannotBeStored) {
  for (const char* name : {"zstd", "shards", "plain"}) {
    for (const Device device : devices()) {
      auto faults = std::make_shared<test::Faults>();
      const Store store(test::make_faulty_store(memory_store().shared_driver(), faults));
      const Array a = create(store, layout_named(name));
      std::mt19937 random(1);
      const Data data(device, a.shape(), a.dtype(), random);
      faults->fail_write(3, EIO);
      const std::string message = error_of([&] { a.write({}, data.there); }, ErrorCode::io);
      EXPECT_EQ(message.rfind("[write] a chunk c/", 0), 0u) << message;
    }
  }
}

// Of a shard of many slabs, what is stored is copied out of their pinned memory, which others have
// then.
TEST_F(DeviceWrite, KeepsNoSlabOfALargeShard) {
  for (const std::int64_t chunks : {8, 200}) {
    long at_most = 0;
    const auto hook =
        std::make_shared<test::StoreHook>([&](std::string_view what, std::string_view) {
          if (what == "set") at_most = std::max(at_most, HostMemory::get().used());
        });
    const Store store(test::make_unlocked_store(memory_store().shared_driver(), hook));
    const Array a = create(
        store, {"", {chunks * 128}, {128}, {chunks * 128}, {codec::bytes(), codec::zstd(1)}});
    std::mt19937 random(1);
    const Data data(Device::simt(), a.shape(), a.dtype(), random);
    const long before = HostMemory::get().used();
    a.write({}, data.there);
    EXPECT_GT(at_most, 0);
    EXPECT_LT(at_most - before, 24) << chunks;
  }
}

// A request each of a bucket.
TEST_F(DeviceWrite, LooksForObjectsOverTheEdgeSideBySide) {
  Config four = config();
  four.threads = 4;
  set_config(four);
  std::mutex mutex;
  std::condition_variable changed;
  int looking = 0, at_most = 0;
  const auto hook =
      std::make_shared<test::StoreHook>([&](std::string_view what, std::string_view key) {
        if (what != "exists" || !key.starts_with("a/c/")) return;
        std::unique_lock lock(mutex);
        at_most = std::max(at_most, ++looking);
        changed.notify_all();
        changed.wait_for(lock, std::chrono::seconds(10), [&] { return at_most > 1; });
        --looking;
      });
  const Store store(test::make_unlocked_store(memory_store().shared_driver(), hook));
  const Array a =
      create(store, {"", {10, 10}, {4, 4}, {}, {codec::bytes(), codec::zstd(1)}, DType::int32});
  std::mt19937 random(1);
  const Data data(Device::simt(), a.shape(), a.dtype(), random);
  a.write({}, data.there);
  EXPECT_GT(at_most, 1);
  EXPECT_EQ(test::bytes_of(a.read()), test::bytes_of(copy(data.there, Device::cpu())));
}

// The array grows meanwhile, and its new rows are written, into the object over the edge that the
// write did not find when it began.
TEST_F(DeviceWrite, KeepsWhatOthersPutBehindTheEdgeMeanwhile) {
  Config one = config();
  one.threads = 1;
  set_config(one);
  for (const Shape& shards : {Shape{}, Shape{8}}) {
    const std::string edge = shards.empty() ? "a/c/3" : "a/c/1";
    for (const Device device : devices()) {
      const Store inside = memory_store();
      const Layout layout{"", {13}, {4}, shards, {codec::bytes(), codec::zstd(1)}, DType::int32};
      std::vector<std::int32_t> rows{-1, -2, -3};
      bool grown = false;
      const auto hook =
          std::make_shared<test::StoreHook>([&](std::string_view what, std::string_view key) {
            if (what != "set" || key != "a/c/0" || std::exchange(grown, true)) return;
            Array theirs = open_array(inside, "a");
            theirs.resize({16});
            theirs.write({slice(13, 16)}, {rows.data(), {3}, {}, DType::int32, Device::cpu()});
            EXPECT_TRUE(inside.driver().exists(edge));
          });
      create(inside, layout);
      const Store outside(test::make_unlocked_store(inside.shared_driver(), hook));
      const Array ours = open_array(outside, "a");
      std::vector<std::int32_t> wanted(13);
      std::iota(wanted.begin(), wanted.end(), 1);
      const Tensor there = copy({wanted.data(), {13}, {}, DType::int32, Device::cpu()}, device);
      ours.write({}, there.view());
      EXPECT_TRUE(grown);
      wanted.insert(wanted.end(), rows.begin(), rows.end());
      const Tensor found = open_array(inside, "a").read();
      ASSERT_EQ(found.nbytes(), 64u);
      EXPECT_EQ(0, std::memcmp(found.data(), wanted.data(), 64)) << edge;
    }
  }
}

}  // namespace
}  // namespace headrace
