#include "kernels/lz4_encode.h"

#include <lz4.h>

#include "headrace/error.h"
#include "kernels/decode_kit.h"
#include "kernels/filter_kit.h"

namespace headrace::test {
namespace {

struct Encoded {
  std::vector<Bytes> blocks;
  std::vector<Fault> faults;
};

Encoded encode(const Place& place,
               const std::vector<Bytes>& chunks,
               const std::vector<std::size_t>& capacities,
               std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto queue = place.make_queue(seed);
  Scratch<std::uint32_t> faults(*queue, chunks.size());
  Scratch<std::uint64_t> sizes(*queue, chunks.size());
  queue->fill(faults.data(), 0, chunks.size() * sizeof(std::uint32_t));
  Encoded result;
  result.blocks =
      run_frames(*queue, random, chunks, capacities, [&](Queue& q, std::span<const Frame> frames) {
        place.kernels->lz4_encode(q, {frames, sizes.data(), faults.data()});
      });
  result.faults.resize(chunks.size());
  std::vector<std::uint64_t> nbytes(chunks.size());
  queue->download(result.faults.data(), faults.data(), chunks.size() * sizeof(std::uint32_t));
  queue->download(nbytes.data(), sizes.data(), chunks.size() * sizeof(std::uint64_t));
  queue->synchronize();
  for (std::size_t i = 0; i < chunks.size(); ++i) result.blocks[i].resize(nbytes[i]);
  return result;
}

std::vector<std::size_t> bounds(const std::vector<Bytes>& chunks) {
  std::vector<std::size_t> capacities;
  for (const Bytes& chunk : chunks)
    capacities.push_back(
        static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(chunk.size()))));
  return capacities;
}

void expect_decodes_to(const Bytes& block, const Bytes& chunk, const std::string& what) {
  Bytes decoded(chunk.size() + 1);
  const int n = LZ4_decompress_safe(reinterpret_cast<const char*>(block.data()),
                                    reinterpret_cast<char*>(decoded.data()),
                                    static_cast<int>(block.size()),
                                    static_cast<int>(decoded.size()));
  ASSERT_EQ(n, static_cast<int>(chunk.size())) << what;
  decoded.resize(chunk.size());
  EXPECT_TRUE(decoded == chunk) << what;
}

Bytes repeats(std::size_t nbytes, std::mt19937_64& random) {
  Bytes bytes;
  while (bytes.size() < nbytes) {
    const std::size_t n = 1 + random() % 300;
    if (bytes.empty() || random() % 4 == 0) {
      const Bytes noise = random_bytes(random, n % 40);
      bytes.insert(bytes.end(), noise.begin(), noise.end());
    } else {
      const std::size_t distance = 1 + random() % std::min<std::size_t>(bytes.size(), 3000);
      for (std::size_t i = 0; i < n; ++i) bytes.push_back(bytes[bytes.size() - distance]);
    }
  }
  bytes.resize(nbytes);
  return bytes;
}

TEST(KernelLz4Encode, LiblzDecodesIt) {
  for (const Place& place : places())
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      std::mt19937_64 random(seed);
      std::vector<Bytes> chunks;
      for (const std::size_t n :
           {0, 1, 4, 5, 11, 12, 13, 16, 17, 100, 65535, 65536, 65537, 65541, 65549, 140000}) {
        chunks.push_back(Bytes(n, 7));
        chunks.push_back(random_bytes(random, n));
        chunks.push_back(repeats(n, random));
        chunks.push_back(packed_field(n, seed));
      }
      // Segments without a match between others.
      Bytes mixed = packed_field(70000, seed);
      const Bytes noise = random_bytes(random, 200000);
      mixed.insert(mixed.end(), noise.begin(), noise.end());
      mixed.insert(mixed.end(), 50000, 1);
      chunks.push_back(mixed);
      const Encoded got = encode(place, chunks, bounds(chunks), seed);
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        EXPECT_EQ(got.faults[i], Fault::none);
        expect_decodes_to(
            got.blocks[i],
            chunks[i],
            place.name + " chunk " + std::to_string(i) + " of " + std::to_string(chunks[i].size()));
      }
    }
}

// At most 10 % larger than what liblz4 makes of it.
TEST(KernelLz4Encode, CompressesAsWellAsLiblz4) {
  for (const Place& place : places())
    for (const bool shuffled : {false, true}) {
      Bytes chunk = packed_field(1 << 20, 5);
      if (shuffled) {
        const Bytes plain = chunk;
        for (std::size_t i = 0; i < plain.size(); ++i)
          chunk[i % 4 * (plain.size() / 4) + i / 4] = plain[i];
      }
      Bytes reference(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(chunk.size()))));
      const int n = LZ4_compress_default(reinterpret_cast<const char*>(chunk.data()),
                                         reinterpret_cast<char*>(reference.data()),
                                         static_cast<int>(chunk.size()),
                                         static_cast<int>(reference.size()));
      const Encoded got = encode(place, {chunk}, {reference.size()}, 1);
      RecordProperty("nbytes", static_cast<int>(got.blocks[0].size()));
      RecordProperty("liblz4", n);
      EXPECT_LT(static_cast<double>(got.blocks[0].size()), 1.1 * n)
          << place.name << (shuffled ? " shuffled" : "") << ", liblz4: " << n;
      expect_decodes_to(got.blocks[0], chunk, place.name);
    }
}

TEST(KernelLz4Encode, TheSameBytesEachTime) {
  for (const Place& place : places()) {
    const std::vector<Bytes> chunks{packed_field(100000, 1)};
    const Encoded first = encode(place, chunks, bounds(chunks), 1);
    for (std::uint64_t seed = 2; seed < 5; ++seed)
      EXPECT_TRUE(encode(place, chunks, bounds(chunks), seed).blocks == first.blocks) << place.name;
  }
}

TEST(KernelLz4Encode, TargetsThatAreTooSmall) {
  for (const Place& place : places()) {
    std::mt19937_64 random(1);
    const Bytes noise = random_bytes(random, 1000), zeros(1000, 0);
    const Encoded got = encode(place, {noise, noise, zeros, noise}, {0, 1000, 20, 1005}, 1);
    const std::vector<Fault> expected{
        Fault::wrong_size, Fault::wrong_size, Fault::none, Fault::none};
    EXPECT_EQ(got.faults, expected) << place.name;
    EXPECT_TRUE(got.blocks[0].empty());
    expect_decodes_to(got.blocks[2], zeros, place.name);
    expect_decodes_to(got.blocks[3], noise, place.name);
  }
}

TEST(KernelLz4Encode, RefusesBlocksTooLargeForLz4) {
  const Frame frame{nullptr, 0x7e000001, nullptr, 0};
  for (const Place& place : places()) {
    const auto queue = place.make_queue(1);
    EXPECT_THROW(place.kernels->lz4_encode(*queue, {{&frame, 1}, nullptr, nullptr}), Error);
  }
}

}  // namespace
}  // namespace headrace::test
