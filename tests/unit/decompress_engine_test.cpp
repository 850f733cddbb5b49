// Blackwell's decompression engine, with a driver made for the test: what it is given, and what
// becomes of what it says. The driver decodes by the kernels as they run on the CPU, and like the
// real one tells of each chunk nothing but its size.

#include "device/decompress_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/stages.h"
#include "engine/layout/device_codecs.h"
#include "kernels/common/fault.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;
using test::error_of;
using testing::HasSubstr;

struct FakeDriver {
  std::vector<std::vector<EngineChunk>> calls;
  int status = 0;
  std::size_t bad_chunk = SIZE_MAX;
};
FakeDriver fake;

// With the queue as its stream.
int decompress(
    EngineChunk* chunks, std::size_t count, unsigned flags, std::size_t* bad_chunk, void* stream) {
  EXPECT_EQ(flags, 0u);
  EXPECT_EQ(stream, nullptr) << "a queue of the host has none";
  fake.calls.emplace_back(chunks, chunks + count);
  if (fake.status != 0) {
    *bad_chunk = fake.bad_chunk;
    return fake.status;
  }
  const auto queue = simt_backend().make_queue(0);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(std::ranges::all_of(chunks[i].reserved, [](unsigned char c) { return c == 0; }));
    std::uint32_t fault = 0;
    const Frame frame{static_cast<const std::uint8_t*>(chunks[i].source),
                      chunks[i].source_nbytes,
                      static_cast<std::uint8_t*>(chunks[i].target),
                      chunks[i].target_nbytes,
                      0};
    const DecodeBatch batch{{&frame, 1}, {}, &fault, false, {}};
    const Kernels& kernels = host_kernels();
    switch (chunks[i].format) {
      case EngineFormat::lz4:
        kernels.lz4(*queue, batch);
        break;
      case EngineFormat::snappy:
        kernels.snappy(*queue, batch);
        break;
      case EngineFormat::deflate:
        kernels.deflate(*queue, batch);
        break;
    }
    queue->synchronize();
    *chunks[i].found_nbytes = fault == 0 ? static_cast<std::uint32_t>(chunks[i].target_nbytes) : 0;
  }
  return 0;
}

void raise_sizes(Queue& queue,
                 const std::uint32_t* found,
                 const std::uint32_t* wanted,
                 const std::uint32_t* chunks,
                 std::size_t count,
                 std::uint32_t* faults) {
  queue.synchronize();
  for (std::size_t i = 0; i < count; ++i)
    if (found[i] != wanted[i]) faults[chunks[i]] = static_cast<std::uint32_t>(Fault::wrong_size);
}

Engine engine;

template <EngineFormat format>
void decode(Queue& queue, const DecodeBatch& batch) {
  decode_by_engine(queue, batch, format, engine, raise_sizes);
}

const Kernels& engine_kernels() {
  static constexpr Kernels kKernels{.lz4 = decode<EngineFormat::lz4>,
                                    .snappy = decode<EngineFormat::snappy>,
                                    .deflate = decode<EngineFormat::deflate>};
  return kKernels;
}
std::string why_no_engine() { return engine.why_not; }

class WithEngine final : public test::SimtDevice {
 public:
  std::span<const DecoderLibrary> libraries() const override {
    static constexpr std::string_view kCodecs[] = {"lz4"};
    static constexpr DecoderLibrary kLibraries[] = {
        {"blackwell-engine", kCodecs, engine_kernels, why_no_engine}};
    return kLibraries;
  }
};

class DecompressEngine : public testing::Test {
 protected:
  void SetUp() override {
    fake = {};
    engine = {"", decompress, 7, std::size_t{4} << 20};
  }

  // As numcodecs has it: a size, and a block.
  static std::vector<std::byte> lz4(const std::vector<std::byte>& bytes) {
    Buffer encoded;
    const CodecChain chain({codec::bytes(), codec::lz4()}, chunk(bytes.size()), {});
    chain.encode(bytes, encoded);
    return {encoded.data(), encoded.data() + encoded.size()};
  }
  static ChunkSpec chunk(std::size_t nbytes) {
    ChunkSpec spec;
    spec.dtype = DType::uint8;
    spec.shape = {static_cast<std::int64_t>(nbytes)};
    return spec;
  }
  static std::vector<std::byte> bytes(std::size_t n, int seed) {
    std::vector<std::byte> made(n);
    for (std::size_t i = 0; i < n; ++i) made[i] = static_cast<std::byte>(i / 7 * seed % 31);
    return made;
  }
};

TEST_F(DecompressEngine, DecodesTheChunksOfAPlanThatAsksForIt) {
  WithEngine devices;
  const auto queue = simt_backend().make_queue(0);
  constexpr std::size_t kNbytes = 10000;
  const CodecChain chain({codec::bytes(), codec::lz4()}, chunk(kNbytes), {});
  DevicePlan plan = make_device_plan(chain);
  ASSERT_EQ(plan.steps.size(), 1u);
  plan.steps[0].library = "blackwell-engine";
  EXPECT_EQ(missing_decoder(devices, plan), "");

  std::vector<Scratch<std::uint8_t>> sources, targets;
  std::vector<DeviceChunk> chunks;
  std::vector<std::vector<std::byte>> wanted;
  for (int i = 0; i < 5; ++i) {
    wanted.push_back(bytes(kNbytes, i + 1));
    std::vector<std::byte> encoded = lz4(wanted.back());
    const std::size_t n = encoded.size();
    if (i == 3) encoded[10] = std::byte{0xff};  // breaks the block
    encoded.resize(n + 2 * kSourcePadding);
    sources.push_back(Scratch<std::uint8_t>::of(
        *queue, reinterpret_cast<const std::uint8_t*>(encoded.data()), encoded.size()));
    targets.emplace_back(*queue, kNbytes);
    chunks.push_back({n, nullptr, sources.back().data(), targets.back().data()});
  }
  const Scratch<std::uint32_t> faults(*queue, 5);
  queue->fill(faults.data(), 0, 5 * sizeof(std::uint32_t));
  DeviceDecoder decoder(*queue, devices, chunks);
  decoder.run(plan, faults.data());
  queue->synchronize();
  ASSERT_EQ(fake.calls.size(), 1u) << "one call for all";
  ASSERT_EQ(fake.calls[0].size(), 5u);
  EXPECT_EQ(fake.calls[0][1].source, sources[1].data() + 4) << "behind the size";
  EXPECT_EQ(fake.calls[0][1].target_nbytes, kNbytes);
  for (std::size_t i = 0; i < 5; ++i) {
    if (i == 3) {
      EXPECT_EQ(faults.data()[i], static_cast<std::uint32_t>(Fault::wrong_size));
      continue;
    }
    EXPECT_EQ(faults.data()[i], 0u);
    EXPECT_EQ(std::memcmp(targets[i].data(), wanted[i].data(), kNbytes), 0);
  }
}

TEST_F(DecompressEngine, GivesEachFormatItsNumber) {
  const auto queue = simt_backend().make_queue(0);
  std::array<std::uint8_t, 128> source{};
  std::array<std::uint8_t, 4> target{};
  std::uint32_t fault = 0;
  const Frame frame{source.data() + 32, 8, target.data(), 4, 0};
  const DecodeBatch batch{{&frame, 1}, {}, &fault, false, {}};
  for (const auto& [call, number] : {std::pair{engine_kernels().deflate, 1},
                                     {engine_kernels().snappy, 2},
                                     {engine_kernels().lz4, 4}}) {
    call(*queue, batch);
    EXPECT_EQ(static_cast<int>(fake.calls.back()[0].format), number);
    EXPECT_NE(fault, 0u) << "zeros are none of these";
    fault = 0;
  }
  engine_kernels().lz4(*queue, DecodeBatch{});
  EXPECT_EQ(fake.calls.size(), 3u) << "nothing to do";
}

TEST_F(DecompressEngine, RefusesWhatItDoesNotTake) {
  const auto queue = simt_backend().make_queue(0);
  std::array<std::uint8_t, 128> source{};
  std::uint32_t fault = 0;
  Frame frame{source.data() + 32, 8, source.data(), 4, 9};
  const DecodeBatch batch{{&frame, 1}, {}, &fault, false, {}};
  const auto refusal = [&](ErrorCode code) {
    return error_of([&] { engine_kernels().lz4(*queue, batch); }, code);
  };
  frame.target_nbytes = engine.max_nbytes + 1;
  EXPECT_THAT(refusal(ErrorCode::unsupported), HasSubstr("a chunk of 4194305 bytes, at most"));
  frame.target_nbytes = 4;
  engine.formats = 3;
  EXPECT_THAT(refusal(ErrorCode::unsupported), HasSubstr("lz4: that of this device does not"));
  engine.formats = 7;
  fake.status = 1;
  fake.bad_chunk = 0;
  EXPECT_THAT(refusal(ErrorCode::unsupported), HasSubstr("of chunk 9 failed with error 1"));
  fake.status = 801;
  EXPECT_THAT(refusal(ErrorCode::unsupported), HasSubstr("error 801"));
  fake.status = 719;
  fake.bad_chunk = SIZE_MAX;
  EXPECT_THAT(refusal(ErrorCode::device),
              HasSubstr("cuMemBatchDecompressAsync failed with error 719"));
  engine.why_not = "the device has none";
  EXPECT_THAT(refusal(ErrorCode::unsupported), HasSubstr("the device has none"));
  EXPECT_EQ(missing_decoder(WithEngine(), Kind::lz4, "blackwell-engine"),
            "blackwell-engine: the device has none");
}

TEST_F(DecompressEngine, IsOfCudaDevicesAndHasAReasonWhereItIsNot) {
  EXPECT_EQ(device_of_implementation("blackwell-engine"), Device::Type::cuda);
  EXPECT_TRUE(only_decodes("blackwell-engine"));
  const DecoderLibrary* const row = cuda_backend().library("blackwell-engine");
  ASSERT_TRUE(row);
  EXPECT_THAT(row->codecs, testing::ElementsAre("lz4"));
  if (!cuda_backend().first_usable()) {
    EXPECT_NE(row->why_not(), "");
    EXPECT_EQ(row->kernels().lz4, nullptr);
  }
}

}  // namespace
}  // namespace headrace
