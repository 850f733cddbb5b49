// How chunks come to devices: neighbours of a shard together, small objects in batches,
// uncompressed chunks whole or in part; what a shard's index says of them may be a lie. And chunks
// that the device's kernels do not take.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <numeric>
#include <random>

#include "conformance/inject.h"
#include "conformance/random_selection.h"
#include "conformance/temp_folder.h"
#include "device/backend.h"
#include "engine/device/to_device.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using test::bytes_of;
using test::devices;
using test::error_of;
using test::filled;
using test::Layout;

class DeviceFetch : public test::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    set_slab(std::size_t{1} << 20);
  }
  static void set_slab(std::size_t nbytes) {
    Config changed = config();
    changed.device_slab_nbytes = nbytes;
    set_config(changed);
  }
  static void set_least_decoded(std::size_t nbytes) {
    Config changed = config();
    changed.device_min_decode_nbytes = nbytes;
    set_config(changed);
  }
};

const CodecSpec little = codec::bytes();
const CodecSpec shuffle{"numcodecs.shuffle", R"({"elementsize": 4})"};

Layout layout_of(std::vector<CodecSpec> codecs, Shape shards = {}) {
  return {"", {60, 60}, {8, 8}, std::move(shards), std::move(codecs)};
}

TEST_F(DeviceFetch, ReadsNeighboursOfAShardTogether) {
  for (const auto& codecs :
       {std::vector{little}, std::vector{little, shuffle}, std::vector{little, codec::zstd(1)}}) {
    auto counts = std::make_shared<test::StoreCounts>();
    const Store store(test::make_counting_store(memory_store().shared_driver(), counts));
    const Array a = filled(store, layout_of(codecs, {64, 64}));
    for (const Device device : devices()) {
      counts->reset();
      EXPECT_EQ(bytes_of(a.to(device).read()), bytes_of(a.read()));
      counts->reset();
      a.to(device).read();
      EXPECT_EQ(counts->opens, 1);
      EXPECT_EQ(counts->range_reads, 2) << "the index and the inner chunks";
    }
  }
}

TEST_F(DeviceFetch, DecodesNeighboursOfAShardOnTheHost) {
  set_least_decoded(std::size_t{1} << 30);
  auto counts = std::make_shared<test::StoreCounts>();
  const Store store(test::make_counting_store(memory_store().shared_driver(), counts));
  const Array a = filled(store, layout_of({little, codec::zstd(1)}, {64, 64}));
  const Tensor x = a.to(Device::simt()).read();
  EXPECT_EQ(counts->range_reads, 2);
  EXPECT_EQ(bytes_of(x), bytes_of(a.read()));
}

TEST_F(DeviceFetch, AsksForSmallObjectsInBatches) {
  for (const auto& codecs : {std::vector{little}, std::vector{little, codec::zstd(1)}}) {
    auto counts = std::make_shared<test::StoreCounts>();
    const Store store(test::make_counting_store(
        test::make_batching_store(memory_store().shared_driver(), 7), counts));
    const Array a = filled(store, {"", {64, 64}, {8, 8}, {}, codecs});
    const std::vector<std::byte> expected = bytes_of(a.read());
    for (const std::size_t least_decoded : {std::size_t{0}, std::size_t{1} << 30}) {
      set_least_decoded(least_decoded);
      counts->reset();
      EXPECT_EQ(bytes_of(a.to(Device::simt()).read()), expected);
      EXPECT_GT(counts->batches, 0);
      EXPECT_EQ(counts->gets, 64);
    }
  }
}

TEST_F(DeviceFetch, ReadsOnlyWhatIsWantedOfUncompressedChunks) {
  for (const Shape& shards : {Shape{}, Shape{64, 64}}) {
    auto counts = std::make_shared<test::StoreCounts>();
    const Store store(test::make_counting_store(memory_store().shared_driver(), counts));
    const Layout layout{
        "", {64, 4096}, {64, 64}, shards.empty() ? shards : Shape{64, 1024}, {little}};
    const Array a = filled(store, layout);
    const Array there = a.to(Device::simt());
    const Selection row{3};
    const Selection half{slice(0, 40)};
    there.read(row);  // shard indices are read once
    counts->reset();
    EXPECT_EQ(bytes_of(there.read(row)), bytes_of(a.read(row)));
    EXPECT_LT(counts->bytes_read, 64 * 4096);
    counts->reset();
    EXPECT_EQ(bytes_of(there.read(half)), bytes_of(a.read(half)));
    EXPECT_GE(counts->bytes_read, 64 * 4096 * 4);
  }
}

// The error of a read, or what it gives.
struct Outcome {
  std::string error;
  std::vector<std::byte> bytes;
  bool operator==(const Outcome&) const = default;
};
void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << (outcome.error.empty() ? std::to_string(outcome.bytes.size()) + " bytes" : outcome.error);
}

Outcome outcome_of(const Array& array) {
  try {
    return {"", bytes_of(array.read())};
  } catch (const Error& error) {
    // Codecs of the host and of devices say what is wrong in their own words.
    const std::string text = error.what();
    return {text.substr(0, text.find(": codec")), {}};
  }
}

// Entries of an index without a checksum: offset and size of each of 16 inner chunks.
class IndexEdit {
 public:
  IndexEdit(StoreDriver& driver, std::string key) : driver_(driver), key_(std::move(key)) {
    driver_.get(key_, original_);
  }
  std::uint64_t shard_nbytes() const { return original_.size(); }
  std::array<std::uint64_t, 2> entry(std::size_t i) const {
    std::array<std::uint64_t, 2> found{};
    std::memcpy(found.data(), original_.data() + place(i), sizeof found);
    return found;
  }
  void store(std::size_t i, std::array<std::uint64_t, 2> entry) {
    Buffer changed;
    changed.assign(original_.bytes());
    std::memcpy(changed.data() + place(i), entry.data(), sizeof entry);
    driver_.set(key_, changed.bytes());
  }

 private:
  std::size_t place(std::size_t i) const { return original_.size() - 16 * (16 - i); }

  StoreDriver& driver_;
  const std::string key_;
  Buffer original_;
};

TEST_F(DeviceFetch, JudgesIndexEntriesAsTheHostDoes) {
  constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  for (const auto& codecs :
       {std::vector{little}, std::vector{little, shuffle}, std::vector{little, codec::zstd(1)}}) {
    const Store store = memory_store();
    const Array a =
        filled(store, {"", {32, 32}, {32, 32}, {}, {codec::sharding({8, 8}, codecs, {little})}});
    IndexEdit index(store.driver(), "a/c/0/0");
    const auto [offset, nbytes] = index.entry(1);
    const std::uint64_t end = index.shard_nbytes();
    const std::array<std::uint64_t, 2> entries[] = {
        {kEmpty, kEmpty},
        {kEmpty, nbytes},
        {offset, kEmpty},
        {offset, 0},
        {0, nbytes},
        {offset, nbytes - 1},
        {offset, nbytes + 1},
        {offset + 1, nbytes},
        {0, end},
        {0, end + 1},
        {end, 0},
        {end, 1},
        {end - nbytes, nbytes},
        {kEmpty - 5, 10},
    };
    std::size_t refused = 0;
    for (const auto& entry : entries) {
      index.store(1, entry);
      const Outcome expected = outcome_of(a);
      refused += !expected.error.empty();
      for (const Device device : devices())
        EXPECT_EQ(outcome_of(a.to(device)), expected) << entry[0] << " " << entry[1];
    }
    EXPECT_GT(refused, 5u);
    EXPECT_LT(refused, std::size(entries));
  }
}

TEST_F(DeviceFetch, EndsWithTheErrorOfAnyRead) {
  for (const Shape& shards : {Shape{}, Shape{16, 16}}) {
    for (const bool batches : {false, true}) {
      auto faults = std::make_shared<test::Faults>();
      auto driver = test::make_faulty_store(memory_store().shared_driver(), faults);
      const Store store(batches ? test::make_batching_store(driver, 5) : driver);
      const Array a = filled(store, layout_of({little, codec::zstd(1)}, shards));
      const std::vector<std::byte> expected = bytes_of(a.read());
      for (const std::size_t slab : {std::size_t{2000}, std::size_t{1} << 20}) {
        set_slab(slab);
        for (const long nth : {1, 2, 7, 15}) {
          // A new handle each time: shard indices may be kept by an old one.
          const Array there = open_array(store, "a").to(Device::simt());
          faults->fail_read(nth, EIO);
          const std::string found = error_of([&] { there.read(); }, ErrorCode::io);
          EXPECT_NE(found.find("[read] a chunk c/"), std::string::npos) << found;
          faults->clear();
          EXPECT_EQ(bytes_of(there.read()), expected);
        }
      }
    }
  }
}

// With kernels of the test's.
class OtherKernels final : public test::SimtDevice {
 public:
  explicit OtherKernels(const Kernels& kernels) : kernels_(kernels) {}
  const Kernels& kernels() const override { return kernels_; }

 private:
  const Kernels kernels_;
};

// A read to that device.
Tensor read_with(const Kernels& kernels, const Array& array, const Implementations& forced = {}) {
  const Array there = array.to(Device::simt());
  const ArrayState& state = *there.state();
  const ReadOptions options;
  Request request(options, nullptr);
  const StoredArray stored(state, state.layout(forced));
  Tensor out = Tensor::empty(array.shape(), array.dtype(), Device::simt());
  OtherKernels backend(kernels);
  read_on_queue(request,
                stored,
                resolve_selection({}, array.shape(), {}),
                out.view(),
                backend,
                backend.make_queue(0));
  return out;
}

// As the real ones, but `kRefused` of three chunks come out as rubbish with Fault::unsupported.
template <std::uint32_t kRefused>
void refuse_some(Queue& queue, const DecodeBatch& batch) {
  host_kernels().zstd(queue, batch);
  for (const Frame& frame : batch.frames) {
    if (frame.chunk % 3 >= kRefused) continue;
    std::memset(frame.target, 0xee, frame.target_nbytes);
    batch.faults[frame.chunk] = static_cast<std::uint32_t>(Fault::unsupported);
  }
}

TEST_F(DeviceFetch, HostDecodesWhatNoKernelTakes) {
  const Decode refusals[] = {refuse_some<1>, refuse_some<2>, refuse_some<3>};
  for (const auto& codecs : {std::vector{little, codec::zstd(1)},
                             std::vector{codec::bytes("big"), shuffle, codec::zstd(1)}}) {
    for (const Shape& shards : {Shape{}, Shape{16, 16}}) {
      const Array a = filled(memory_store(), layout_of(codecs, shards));
      for (const Decode refusal : refusals) {
        Kernels kernels = host_kernels();
        kernels.zstd = refusal;
        for (const std::size_t slab : {std::size_t{512}, std::size_t{3000}, std::size_t{1} << 20}) {
          set_slab(slab);
          EXPECT_EQ(bytes_of(read_with(kernels, a)), bytes_of(a.read())) << slab;
        }
      }
    }
  }
}

// Shards of what is refused stay open until it is read.
TEST_F(DeviceFetch, WhatNoKernelTakesKeepsFewFilesOpen) {
  const test::TempFolder folder;
  const Store store = open_store(folder / "a", StoreMode::overwrite);
  CreateOptions options;
  options.shape = {600, 8};
  options.dtype = DType::uint8;
  options.chunks = {1, 8};
  options.shards = {1, 16};
  options.codecs = {little, codec::zstd(1)};
  const Array a = create_array(store, "", options);
  std::vector<std::uint8_t> values(600 * 8);
  std::iota(values.begin(), values.end(), std::uint8_t{0});
  a.write({}, {values.data(), options.shape, {}, DType::uint8, {}});
  Kernels kernels = host_kernels();
  kernels.zstd = refuse_some<3>;
  set_slab(64);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 400;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::string error;
  std::vector<std::byte> found;
  try {
    found = bytes_of(read_with(kernels, a));
  } catch (const Error& failure) {
    error = failure.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(error, "");
  EXPECT_EQ(found, bytes_of(a.read()));
}

TEST_F(DeviceFetch, AForcedDeviceRefusesWhatNoKernelTakes) {
  const Array a = filled(memory_store(), layout_of({little, codec::zstd(1)}));
  Kernels kernels = host_kernels();
  kernels.zstd = refuse_some<1>;
  const std::string found = error_of(
      [&] {
        read_with(kernels, a, {{"zstd", "headrace-simt"}});
      },
      ErrorCode::unsupported);
  EXPECT_NE(found.find("[read] a chunk c/0/0: codec zstd: a feature"), std::string::npos) << found;
}

TEST_F(DeviceFetch, HostNamesWhatItCannotDecodeEither) {
  auto faults = std::make_shared<test::Faults>();
  const Store store(test::make_faulty_store(memory_store().shared_driver(), faults));
  const Array a = filled(store, layout_of({little, codec::zstd(1)}));
  faults->flip_byte("a/c/1/1", 0);  // the magic number
  const Outcome expected = outcome_of(a);
  EXPECT_NE(expected.error.find("[read] a chunk c/1/1"), std::string::npos) << expected.error;
  Kernels kernels = host_kernels();
  kernels.zstd = refuse_some<3>;
  const std::string found = error_of([&] { read_with(kernels, a); }, ErrorCode::corrupt);
  EXPECT_EQ(found.substr(0, found.find(": codec")), expected.error);
}

// A dictionary, which nobody has: the kernel cannot tell that the host cannot either.
TEST_F(DeviceFetch, RefusesFramesThatNeedADictionary) {
  const Store store = memory_store();
  const Layout layout{"", {8}, {8}, {}, {little, codec::zstd(1)}, DType::uint8};
  const Array a = filled(store, layout);
  constexpr unsigned char kFrame[] = {
      0x28, 0xb5, 0x2f, 0xfd, 0x21, 5, 8, 0x41, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  store.driver().set("a/c/0", std::as_bytes(std::span(kFrame)));
  for (const Device device : devices()) {
    const std::string found = error_of([&] { a.to(device).read(); }, ErrorCode::corrupt);
    EXPECT_EQ(found, error_of([&] { a.read(); }, ErrorCode::corrupt));
    ReadOptions forced;
    forced.implementations = {{"zstd", std::string(backend(device.type).own_name())}};
    error_of([&] { a.to(device).read({}, forced); }, ErrorCode::unsupported);
  }
}

bool told_of_planes = false;

TEST_F(DeviceFetch, TellsLzKernelsOfPlanes) {
  const CodecSpec bits{"numcodecs.imagecodecs_bitshuffle", R"({"itemsize": 4, "blocksize": 8})"};
  Kernels kernels = host_kernels();
  kernels.lz4 = [](Queue& queue, const DecodeBatch& batch) {
    told_of_planes = batch.planes;
    host_kernels().lz4(queue, batch);
  };
  const auto tells = [&](std::vector<CodecSpec> codecs) {
    const Array a = filled(memory_store(), layout_of(std::move(codecs)));
    EXPECT_EQ(bytes_of(read_with(kernels, a)), bytes_of(a.read()));
    return told_of_planes;
  };
  EXPECT_TRUE(tells({little, shuffle, codec::lz4()}));
  EXPECT_TRUE(tells({little, bits, codec::lz4()}));
  EXPECT_TRUE(tells({little, shuffle, codec::crc32c(), codec::lz4()}));
  EXPECT_FALSE(tells({little, codec::lz4()}));
  EXPECT_FALSE(tells({little, codec::lz4(), codec::crc32c()}));
}

}  // namespace
}  // namespace headrace
