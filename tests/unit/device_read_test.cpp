// Reads to devices, compared with reads to the host: every layout and codec, selections, strided
// and reversed `out`, missing and corrupt chunks, shards, slabs smaller than the array, threads.
// The device is the one that runs kernels on the CPU, and the GPU where there is one.

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <thread>

#include "conformance/inject.h"
#include "conformance/random_selection.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using test::bytes_of;
using test::devices;
using test::error_of;
using test::filled;
using test::Layout;
using test::random_selection;

using DeviceRead = test::DeviceTest;

// Device memory seen from the host.
class DeviceMemory {
 public:
  DeviceMemory(Device device, std::size_t nbytes)
      : queue_(backend(device.type).make_queue(device.index)),
        memory_(backend(device.type).allocate(*queue_, nbytes)),
        nbytes_(nbytes) {
    queue_->fill(memory_.get(), 0xcd, nbytes);
    queue_->synchronize();
  }
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> copy(nbytes_);
    queue_->download(copy.data(), memory_.get(), nbytes_);
    queue_->synchronize();
    return copy;
  }

 private:
  std::unique_ptr<Queue> queue_;
  std::shared_ptr<void> memory_;
  std::size_t nbytes_;
};

std::vector<Layout> layouts() {
  const CodecSpec little = codec::bytes();
  const CodecSpec big = codec::bytes("big");
  const CodecSpec shuffle{"numcodecs.shuffle", R"({"elementsize": 4})"};
  const CodecSpec bits{"numcodecs.imagecodecs_bitshuffle", R"({"itemsize": 4, "blocksize": 8})"};
  const CodecSpec adler{"numcodecs.adler32", "{}"};
  const CodecSpec turned = codec::transpose({1, 0});
  const auto nested =
      codec::sharding({2, 2}, {little, codec::zstd(1)}, {little, codec::crc32c()}, "start");
  return {
      {"plain", {13, 17}, {4, 5}, {}, {little}},
      {"whole_rows", {13, 17}, {4, 17}, {}, {little, shuffle}},
      {"big_endian", {13, 17}, {4, 5}, {}, {big}},
      {"complex_big", {13, 17}, {4, 5}, {}, {big}, DType::complex128},
      {"bytes", {13, 17}, {4, 5}, {}, {little, shuffle}, DType::int8},
      {"shuffle", {13, 17}, {4, 5}, {}, {little, shuffle}},
      {"bitshuffle", {13, 17}, {5, 9}, {}, {little, bits}},
      {"transposed", {9, 7, 5}, {4, 3, 2}, {}, {codec::transpose({2, 0, 1}), little}},
      {"transposed_big", {9, 17}, {4, 17}, {}, {turned, big, shuffle, bits}, DType::int16},
      {"many_axes",
       {2, 3, 2, 3, 2, 3, 2, 3, 2, 3},
       {1, 2, 1, 2, 1, 2, 1, 2, 2, 2},
       {},
       {codec::transpose({1, 0, 3, 2, 5, 4, 7, 6, 9, 8}), little},
       DType::uint8},
      {"checksums", {13, 17}, {4, 5}, {}, {little, codec::crc32c(), shuffle, adler}},
      {"zstd", {13, 17}, {4, 5}, {}, {little, codec::zstd(3, true)}},
      {"lz4", {13, 17}, {4, 5}, {}, {little, shuffle, codec::lz4()}},
      {"blosc", {130, 170}, {64, 128}, {}, {little, codec::blosc("lz4", 5, "shuffle", 0, 4096)}},
      {"gzip_crc", {13, 17}, {13, 6}, {}, {little, codec::gzip(5), codec::crc32c()}},
      {"zlib", {13, 17}, {13, 6}, {}, {big, {"numcodecs.zlib", "{}"}}},
      {"twice_compressed", {13, 17}, {4, 5}, {}, {little, codec::zstd(1), codec::gzip(1)}},
      {"delta", {13, 17}, {4, 5}, {}, {{"numcodecs.delta", R"({"dtype": "<f4"})"}, little}},
      {"transposed_behind_delta",
       {13, 17},
       {4, 5},
       {},
       {{"numcodecs.delta", R"({"dtype": "<i2"})"}, turned, big, codec::zstd(1)},
       DType::int16},
      {"scaled",
       {13, 17},
       {4, 5},
       {},
       {{"numcodecs.fixedscaleoffset",
         R"({"offset": 10, "scale": 4, "dtype": "<i4", "astype": "<i2"})"},
        little,
        shuffle},
       DType::int32},
      {"cast",
       {13, 17},
       {4, 5},
       {},
       {{"numcodecs.astype", R"({"encode_dtype": "<i8", "decode_dtype": "<i4"})"}, big},
       DType::int32},
      // The first transpose moves dimensions and no bytes: the second counts from what it gives.
      {"transposed_twice",
       {3, 5, 7},
       {1, 5, 7},
       {},
       {codec::transpose({1, 2, 0}), codec::transpose({1, 0, 2}), little}},
      {"reshaped",
       {6, 5, 7},
       {2, 3, 7},
       {},
       {{"reshape", R"({"shape": [[0, 1], 7]})"}, turned, big, codec::zstd(1)}},
      {"scale_offset", {13, 17}, {4, 5}, {}, {{"scale_offset", R"({"scale": 0.25})"}, big}},
      {"cast_value", {13, 17}, {4, 5}, {}, {{"cast_value", R"({"data_type": "float64"})"}, big}},
      {"cast_by_the_host",
       {13, 17},
       {4, 5},
       {},
       {{"cast_value", R"({"data_type": "int16", "out_of_range": "clamp"})"}, big},
       DType::int32},
      {"packed_bits", {13, 17}, {4, 5}, {}, {{"packbits", R"({"last_bit": 8})"}}, DType::int32},
      {"bz2", {13, 17}, {4, 5}, {}, {little, shuffle, {"numcodecs.bz2", ""}}},
      {"packbits", {13, 17}, {4, 5}, {}, {{"numcodecs.packbits", "{}"}, little}, DType::boolean},
      {"rounded",
       {13, 17},
       {4, 5},
       {},
       {{"bitround", R"({"keepbits": 9})"}, little, codec::zstd(1)}},
      {"shards_plain", {13, 17}, {2, 3}, {6, 9}, {little}},
      {"shards_shuffle", {13, 17}, {2, 3}, {6, 9}, {little, shuffle}},
      {"shards_zstd", {13, 17}, {2, 3}, {6, 9}, {little, codec::zstd(1)}},
      {"nested_shards", {21, 17}, {4, 4}, {12, 8}, {nested}},
      {"v2_zstd", {13, 17}, {4, 5}, {}, {little, codec::zstd(1)}, DType::float32, 2},
      {"one_chunk", {5}, {9}, {}, {little, shuffle}},
      {"scalar", {}, {}, {}, {big}},
      {"empty", {0, 4}, {2, 2}, {}, {little}},
  };
}

class DeviceReadLayouts : public DeviceRead, public testing::WithParamInterface<Layout> {};

TEST_P(DeviceReadLayouts, GivesWhatAReadToTheHostGives) {
  const Array a = filled(memory_store(), GetParam());
  for (const Device device : devices()) {
    const Array there = a.to(device);
    const Tensor whole = there.read();
    EXPECT_EQ(whole.device(), device);
    EXPECT_EQ(whole.shape(), GetParam().shape);
    EXPECT_EQ(bytes_of(whole), bytes_of(a.read())) << device.to_string();
    std::mt19937 random(1);
    for (int i = 0; i < 25; ++i) {
      const Selection selection = random_selection(GetParam().shape, random);
      ASSERT_EQ(bytes_of(there.read(selection)), bytes_of(a.read(selection)))
          << device.to_string() << " " << i;
    }
  }
}

// Strides of any order and sign with gaps between elements; what lies in the gaps stays.
TEST_P(DeviceReadLayouts, FillsStridedMemoryInPlace) {
  const Array a = filled(memory_store(), GetParam());
  const auto itemsize = static_cast<std::int64_t>(GetParam().dtype.itemsize());
  for (const Device device : devices()) {
    std::mt19937 random(2);
    for (int i = 0; i < 8; ++i) {
      const Selection selection = i == 0 ? Selection{} : random_selection(GetParam().shape, random);
      const Shape shape = a.result_shape(selection);
      std::vector<std::size_t> order(shape.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      Shape strides(shape.size());
      std::int64_t extent = itemsize, first = 0;
      for (const std::size_t d : order) {
        strides[d] = extent * static_cast<std::int64_t>(1 + random() % 2);
        extent = strides[d] * std::max<std::int64_t>(shape[d], 1);
        if (random() % 2 == 0) continue;
        first += strides[d] * std::max<std::int64_t>(shape[d] - 1, 0);
        strides[d] = -strides[d];
      }
      const auto nbytes = static_cast<std::size_t>(extent);
      const DeviceMemory there(device, nbytes);
      a.to(device).read_into(selection,
                             {there.data() + first, shape, strides, GetParam().dtype, device});
      std::vector<std::byte> here(nbytes, std::byte{0xcd});
      a.read_into(selection,
                  {here.data() + first, shape, strides, GetParam().dtype, Device::cpu()});
      ASSERT_EQ(there.bytes(), here) << device.to_string() << " " << i;
    }
  }
}

TEST_P(DeviceReadLayouts, ReadsManySelectionsTogether) {
  const Array a = filled(memory_store(), GetParam());
  for (const Device device : devices()) {
    const Array there = a.to(device);
    std::mt19937 random(3);
    std::vector<Selection> selections;
    std::vector<Tensor> results;
    std::vector<ReadRequest> requests;
    for (int i = 0; i < 12; ++i) {
      selections.push_back(random_selection(GetParam().shape, random));
      const Shape shape = a.result_shape(selections.back());
      results.push_back(Tensor::empty(shape, GetParam().dtype, device));
      requests.push_back({there, selections.back(), results.back().view()});
    }
    read_many(requests);
    for (std::size_t i = 0; i < results.size(); ++i)
      ASSERT_EQ(bytes_of(results[i]), bytes_of(a.read(selections[i])))
          << device.to_string() << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         DeviceReadLayouts,
                         testing::ValuesIn(layouts()),
                         [](const auto& layout) { return std::string(layout.param.name); });

Layout layout_named(const std::string& name) {
  for (Layout& layout : layouts()) {
    if (name == layout.name) return layout;
  }
  throw std::logic_error("no layout " + name);
}

TEST_F(DeviceRead, ReadsPointsInAnyOrderAndTwice) {
  for (const char* name : {"plain", "shuffle", "zstd", "big_endian", "shards_shuffle"}) {
    const Array a = filled(memory_store(), layout_named(name));
    const IndexArray rows{{12, 0, 5, 0, -1, 7}, {3, 2}};
    const IndexArray columns{{16, 0, 3, 0, 2, -17}, {3, 2}};
    const Selection points = Selection::coordinate({rows, columns});
    for (const Device device : devices()) {
      const Tensor x = a.to(device).read(points);
      EXPECT_EQ(x.shape(), (Shape{3, 2}));
      EXPECT_EQ(bytes_of(x), bytes_of(a.read(points))) << name << " " << device.to_string();
    }
  }
}

TEST_F(DeviceRead, NamesArrayChunkAndCodecOfABadChunk) {
  for (const char* name :
       {"plain", "shuffle", "checksums", "zstd", "lz4", "blosc", "gzip_crc", "shards_shuffle"}) {
    const Layout layout = layout_named(name);
    auto faults = std::make_shared<test::Faults>();
    const Store store(test::make_faulty_store(memory_store().shared_driver(), faults));
    const Array a = filled(store, layout);
    const std::string key = store.driver().list("a/c/").front();
    Buffer bytes;
    store.driver().get(key, bytes);
    faults->shorten(key, bytes.size() - 3);
    const std::string expected = error_of([&] { a.read(); }, ErrorCode::corrupt);
    const std::string place = expected.substr(0, expected.find(": "));
    EXPECT_NE(place.find("[read] a chunk " + key.substr(2)), std::string::npos) << place;
    for (const Device device : devices()) {
      const std::string found = error_of([&] { a.to(device).read(); }, ErrorCode::corrupt);
      EXPECT_EQ(found.substr(0, place.size()), place) << name << ": " << found;
      if (layout.shards.empty()) {
        EXPECT_NE(found.find("codec "), std::string::npos) << found;
      }
    }
  }
}

TEST_F(DeviceRead, NamesTheChunkWhoseChecksumIsWrong) {
  auto faults = std::make_shared<test::Faults>();
  const Store store(test::make_faulty_store(memory_store().shared_driver(), faults));
  const Array a = filled(store, layout_named("checksums"));
  faults->flip_byte("a/c/1/2", 9);
  for (const Device device : devices()) {
    const std::string found = error_of([&] { a.to(device).read(); }, ErrorCode::corrupt);
    EXPECT_NE(found.find("[read] a chunk c/1/2: codec adler32: the checksum"), std::string::npos)
        << found;
    // The others decode.
    EXPECT_EQ(bytes_of(a.to(device).read({slice(0, 4), all})),
              bytes_of(a.read({slice(0, 4), all})));
  }
}

// What the host refuses a device refuses, and what it takes reads the same.
TEST_F(DeviceRead, JudgesDamagedChunksAsTheHostDoes) {
  for (const char* name :
       {"zstd", "lz4", "blosc", "gzip_crc", "zlib", "packbits", "checksums", "shards_zstd"}) {
    auto faults = std::make_shared<test::Faults>();
    const Store store(test::make_faulty_store(memory_store().shared_driver(), faults));
    const Array a = filled(store, layout_named(name));
    const std::string key = store.driver().list("a/c/").front();
    Buffer bytes;
    store.driver().get(key, bytes);
    std::mt19937 random(4);
    for (int i = 0; i < 30; ++i) {
      const std::size_t at = random() % bytes.size();
      faults->clear();
      faults->flip_byte(key, at);
      const auto judge = [&](const Device& device) {
        try {
          return std::pair(true, bytes_of(a.to(device).read()));
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
          return std::pair(false, std::vector<std::byte>());
        }
      };
      const auto expected = judge(Device::cpu());
      for (const Device device : devices()) {
        const auto found = judge(device);
        EXPECT_EQ(found.first, expected.first)
            << name << " byte " << at << " of " << bytes.size() << " on " << device.to_string();
        if (found.first == expected.first) {
          EXPECT_TRUE(found.second == expected.second) << name << " byte " << at;
        }
      }
    }
  }
}

TEST_F(DeviceRead, StopsWhenCancelledOrWhenPollThrows) {
  auto faults = std::make_shared<test::Faults>();
  const Store store(test::make_faulty_store(memory_store().shared_driver(), faults));
  const Layout layout{"", {400}, {1}, {}, {codec::bytes(), codec::crc32c()}};
  const Array a = filled(store, layout).to(Device::simt());
  faults->delay_reads_ms(50);  // longer than a poll is away, on however many processors
  Future<Tensor> future = a.read_async();
  EXPECT_FALSE(future.wait_for(std::chrono::milliseconds(1)));
  EXPECT_TRUE(future.cancel());
  error_of([&] { future.get(); }, ErrorCode::cancelled);
  ReadOptions options;
  options.poll = [] { throw std::runtime_error("stop"); };
  EXPECT_THROW(a.read({}, options), std::runtime_error);
}

TEST_F(DeviceRead, ServesManyThreadsAtOnce) {
  const Array a = filled(memory_store(), layout_named("shards_shuffle"));
  const std::vector<std::byte> expected = bytes_of(a.read());
  for (const Device device : devices()) {
    const Array there = a.to(device);
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 3; ++i) EXPECT_EQ(bytes_of(there.read()), expected);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(DeviceRead, DecodesSmallReadsOnTheHost) {
  Config large = config();
  large.device_min_decode_nbytes = std::size_t{1} << 20;
  set_config(large);
  for (const char* name : {"shuffle", "zstd", "transposed_big", "nested_shards", "blosc"}) {
    const Array a = filled(memory_store(), layout_named(name));
    for (const Device device : devices()) {
      std::mt19937 random(3);
      for (int i = 0; i < 10; ++i) {
        const Selection selection = random_selection(a.shape(), random);
        ASSERT_EQ(bytes_of(a.to(device).read(selection)), bytes_of(a.read(selection))) << name;
      }
    }
  }
}

TEST_F(DeviceRead, RefusesOutOnAnotherDevice) {
  const Array a = filled(memory_store(), layout_named("plain"));
  Tensor host = Tensor::empty(a.shape(), a.dtype());
  error_of([&] { a.to(Device::simt()).read_into({}, host.view()); }, ErrorCode::invalid_argument);
  const Tensor there = Tensor::empty(a.shape(), a.dtype(), Device::simt());
  error_of([&] { a.read_into({}, there.view()); }, ErrorCode::invalid_argument);
}

TEST_F(DeviceRead, ReadsManyArraysToDevicesOfTheirOwn) {
  const Array a = filled(memory_store(), layout_named("shuffle"));
  const Tensor here = Tensor::empty(a.shape(), a.dtype());
  const Tensor there = Tensor::empty(a.shape(), a.dtype(), Device::simt());
  read_many({{a, {}, here.view()}, {a.to(Device::simt()), {}, there.view()}});
  EXPECT_EQ(bytes_of(here), bytes_of(there));
}

}  // namespace
}  // namespace headrace
