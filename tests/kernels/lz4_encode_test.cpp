#include "kernels/lz/lz4_encode.h"

#include <lz4.h>

#include "headrace/error.h"
#include "kernels/encode_kit.h"

namespace headrace::test {
namespace {

Encoded encode(const Place& place,
               const std::vector<Bytes>& chunks,
               const std::vector<std::size_t>& capacities,
               std::uint64_t seed) {
  return test::encode(place, chunks, capacities, seed, place.kernels->lz4_encode);
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
            got.chunks[i],
            chunks[i],
            place.name + " chunk " + std::to_string(i) + " of " + std::to_string(chunks[i].size()));
      }
    }
}

TEST(KernelLz4Encode, WindowsAndSegments) {
  const std::vector<Bytes> chunks = match_cases();
  for (const Place& place : encode_places()) {
    const Encoded got = encode(place, chunks, bounds(chunks), 1);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      EXPECT_EQ(got.faults[i], Fault::none);
      expect_decodes_to(got.chunks[i], chunks[i], place.name + " chunk " + std::to_string(i));
    }
    expect_decodes(place, place.kernels->lz4, got.chunks, chunks);
  }
}

// More segments than a warp lays out at a time, with and without matches in any order.
TEST(KernelLz4Encode, ManySegmentsWithFewMatches) {
  for (const Place& place : encode_places()) {
    Bytes chunk = noise_bytes(1'200'000, 1);
    for (const std::size_t at : {0, 40'000, 41'000, 100'000, 530'000, 600'000, 1'150'000})
      std::fill_n(chunk.begin() + static_cast<std::ptrdiff_t>(at), at % 700 + 20, 3);
    const std::vector<Bytes> chunks{chunk, {}, noise_bytes(600'000, 2), chunk};
    const Encoded got = encode(place, chunks, bounds(chunks), 1);
    for (std::size_t i = 0; i < chunks.size(); ++i)
      expect_decodes_to(got.chunks[i], chunks[i], place.name + " chunk " + std::to_string(i));
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
      RecordProperty("nbytes", static_cast<int>(got.chunks[0].size()));
      RecordProperty("liblz4", n);
      EXPECT_LT(static_cast<double>(got.chunks[0].size()), 1.1 * n)
          << place.name << (shuffled ? " shuffled" : "") << ", liblz4: " << n;
      expect_decodes_to(got.chunks[0], chunk, place.name);
    }
}

TEST(KernelLz4Encode, TheSameBytesEachTime) {
  for (const Place& place : encode_places()) {
    const std::vector<Bytes> chunks{
        packed_field(100000, 1), periodic(70000, 3), colliding_words(30000, 1)};
    const Encoded first = encode(place, chunks, bounds(chunks), 1);
    for (std::uint64_t seed = 2; seed < 5; ++seed)
      EXPECT_TRUE(encode(place, chunks, bounds(chunks), seed).chunks == first.chunks) << place.name;
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
    EXPECT_TRUE(got.chunks[0].empty());
    expect_decodes_to(got.chunks[2], zeros, place.name);
    expect_decodes_to(got.chunks[3], noise, place.name);
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
