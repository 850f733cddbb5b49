#include "headrace/error.h"
#include "kernels/encode_kit.h"
#include "kernels/zstd/encode/stages.h"
#include "kernels/zstd_frames.h"

namespace headrace::test {
namespace {

constexpr std::uint32_t kBlock = 128 * 1024;

// Blocks may be smaller than the format says, from 32 KiB on.
std::size_t bound(std::size_t nbytes, std::uint32_t block_nbytes) {
  return nbytes + 18 + 3 * (nbytes / std::min<std::size_t>(block_nbytes, 32 << 10) + 1);
}

Encoded encode(const Place& place,
               const std::vector<Bytes>& chunks,
               const ZstdFormat& format,
               std::uint64_t seed,
               std::vector<std::size_t> capacities = {}) {
  if (capacities.empty())
    for (const Bytes& chunk : chunks)
      capacities.push_back(bound(chunk.size(), format.block_nbytes));
  return test::encode(place, chunks, capacities, seed, [&](Queue& q, const EncodeBatch& batch) {
    place.kernels->zstd_encode(q, batch, format);
  });
}

// By libzstd and by the kernels.
void expect_decode_to(const Place& place, const Encoded& got, const std::vector<Bytes>& chunks) {
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    SCOPED_TRACE(place.name + " chunk " + std::to_string(i) + " of " +
                 std::to_string(chunks[i].size()));
    EXPECT_EQ(got.faults[i], Fault::none);
    Bytes decoded(chunks[i].size());
    EXPECT_TRUE(reference_decode(got.chunks[i], decoded));
    EXPECT_TRUE(decoded == chunks[i]);
    EXPECT_EQ(ZSTD_getFrameContentSize(got.chunks[i].data(), got.chunks[i].size()),
              chunks[i].size());
  }
  expect_decodes(place, place.kernels->zstd, got.chunks, chunks);
}

TEST(KernelZstdEncode, EveryKindAndSizeOfData) {
  std::set<std::string> seen;
  for (const Place& place : places())
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      std::mt19937_64 random(seed);
      std::vector<Bytes> chunks;
      for (const std::size_t n : {0, 1, 2, 5, 6, 7, 33, 100, 255, 256, 257, 1023, 1500, 20000}) {
        for (const Kind& kind : kinds()) chunks.push_back(kind.make(n, seed));
        chunks.push_back(repeats(n, random));
      }
      const Encoded got = encode(place, chunks, {kBlock, seed == 1}, seed);
      expect_decode_to(place, got, chunks);
      for (std::size_t i = 0; i < chunks.size(); ++i)
        seen.merge(features(got.chunks[i], chunks[i].size()));
    }
  expect_features(seen,
                  {"no sequences",
                   "many sequences",
                   "4 streams",
                   "1 stream",
                   "fse weights",
                   "direct weights",
                   "rle block",
                   "predefined",
                   "rle table",
                   "fse table"});
}

TEST(KernelZstdEncode, SizesAroundThoseOfBlocks) {
  for (const Place& place : places())
    for (const bool checksum : {false, true}) {
      std::mt19937_64 random(3);
      std::vector<Bytes> chunks;
      for (const std::size_t n : {65535, 65536, 65537, 65791, 65792, 131071, 131072, 131073}) {
        chunks.push_back(packed_field(n, n));
        chunks.push_back(repeats(n, random));
      }
      // Matches in one segment only, in neither, and blocks of every kind in a row.
      chunks.push_back(random_bytes(70000, 1) + text(61072, 1) + Bytes(131072, 4) +
                       random_bytes(131072, 2) + repeats(65536, random) + random_bytes(200000, 3));
      expect_decode_to(place, encode(place, chunks, {kBlock, checksum}, 1), chunks);
    }
}

TEST(KernelZstdEncode, WindowsAndSegments) {
  const std::vector<Bytes> chunks = match_cases();
  for (const Place& place : encode_places())
    expect_decode_to(place, encode(place, chunks, {kBlock, false}, 1), chunks);
}

TEST(KernelZstdEncode, BlocksOfOtherSizes) {
  for (const Place& place : places())
    for (const std::uint32_t block_nbytes : {1024u, 5000u, 32768u, 65537u}) {
      std::mt19937_64 random(block_nbytes);
      const std::vector<Bytes> chunks{
          packed_field(150000, 1), repeats(140000, random), random_bytes(5001, 1), {}};
      const Encoded got = encode(place, chunks, {block_nbytes, true}, 1);
      expect_decode_to(place, got, chunks);
      EXPECT_LT(got.chunks[1].size(), 100000) << block_nbytes;
    }
}

// Codes of more than 11 bits have to be shortened, and a length that is left over to be used.
TEST(KernelZstdEncode, SkewedLiterals) {
  for (const Place& place : places()) {
    std::vector<Bytes> chunks;
    for (const double ratio : {1.3, 1.618, 2.0, 3.0}) {
      Bytes bytes;
      double count = 1;
      for (unsigned symbol = 0; bytes.size() < 100000 && symbol < 256; ++symbol, count *= ratio)
        bytes.insert(
            bytes.end(), static_cast<std::size_t>(count), static_cast<std::uint8_t>(symbol * 7));
      std::shuffle(bytes.begin(), bytes.end(), std::mt19937_64(1));
      chunks.push_back(bytes);
    }
    for (const unsigned values : {2u, 3u, 127u, 128u, 129u, 130u, 200u, 255u})
      chunks.push_back(random_bytes(30000, values, values));
    expect_decode_to(place, encode(place, chunks, {kBlock, false}, 1), chunks);
  }
}

// The codes of lengths are reckoned, not looked up.
TEST(KernelZstdEncode, CodesOfLengths) {
  namespace zstd = host::zstd;
  const auto expect = [](const auto& codes, std::uint32_t value, std::uint32_t code) {
    ASSERT_LT(code, std::size(codes)) << value;
    EXPECT_GE(value, zstd::code_baseline(codes[code]));
    EXPECT_LT(value - zstd::code_baseline(codes[code]), 1u << zstd::code_bits(codes[code]))
        << value;
  };
  for (std::uint32_t n = 0; n < kBlock; ++n) {
    expect(zstd::kLiteralLengthCodes, n, zstd::literal_length_code(n));
    if (n >= 3) expect(zstd::kMatchLengthCodes, n, zstd::match_length_code(n));
  }
}

// Matches of two lengths behind literals of two lengths, so that half of the states belong to one
// code, and runs of sequences that began with wrong ones keep them for long.
TEST(KernelZstdEncode, StatesThatTakeLongToMeet) {
  std::vector<Bytes> chunks;
  for (const std::size_t n : {3000, 130'000, 200'000}) {
    std::mt19937_64 random(n);
    Bytes chunk = noise_bytes(1000, n);
    while (chunk.size() < n) {
      const Bytes literals = random_bytes(random, 1 + random() % 2);
      chunk.insert(chunk.end(), literals.begin(), literals.end());
      for (std::size_t left = 8 + random() % 2; left > 0; --left)
        chunk.push_back(chunk[chunk.size() - 1000]);
    }
    chunks.push_back(chunk);
  }
  for (const Place& place : encode_places()) {
    std::vector<Bytes> first;
    for (std::uint64_t seed = 1; seed < 3; ++seed) {
      const Encoded got = encode(place, chunks, {kBlock, false}, seed);
      expect_decode_to(place, got, chunks);
      if (first.empty()) first = got.chunks;
      EXPECT_TRUE(got.chunks == first) << place.name << " seed " << seed;
    }
  }
}

// By the size of blocks that stay raw: each has a header of 3 bytes.
TEST(KernelZstdEncode, FewChunksHaveSmallerBlocks) {
  const std::vector<Bytes> chunks{noise_bytes(256 << 10, 1)};
  constexpr std::size_t kFrameHeader = 10;
  for (const Place& place : encode_places()) {
    const std::size_t blocks = place.name == "simt, long segments" ? 2 : 8;
    const Encoded got = encode(place, chunks, {kBlock, false}, 1);
    expect_decode_to(place, got, chunks);
    EXPECT_EQ(got.chunks[0].size(), kFrameHeader + 3 * blocks + chunks[0].size()) << place.name;
  }
}

// At most 10 % larger than what libzstd's level 1 makes of it.
TEST(KernelZstdEncode, CompressesAsWellAsLevel1) {
  for (const Place& place : places())
    for (const Kind& kind : kinds()) {
      if (kind.name == "constant") continue;
      const Bytes chunk = kind.make(600'000, 5);
      const std::size_t level_1 = compress(chunk, {.level = 1}).size();
      const Encoded got = encode(place, {chunk}, {kBlock, false}, 1);
      EXPECT_LT(static_cast<double>(got.chunks[0].size()), 1.1 * static_cast<double>(level_1))
          << place.name << " " << kind.name;
      expect_decode_to(place, got, {chunk});
    }
}

TEST(KernelZstdEncode, TheSameBytesEachTime) {
  const std::vector<Bytes> chunks{
      packed_field(200000, 1), text(100000, 2), periodic(70000, 3), colliding_words(30000, 1)};
  std::vector<Bytes> first;
  for (const Place& place : places())
    for (std::uint64_t seed = 1; seed < 4; ++seed) {
      const Encoded got = encode(place, chunks, {kBlock, true}, seed);
      if (first.empty()) first = got.chunks;
      EXPECT_TRUE(got.chunks == first) << place.name << " seed " << seed;
    }
}

TEST(KernelZstdEncode, TargetsThatAreTooSmall) {
  const Bytes noise = random_bytes(1000, 1), zeros(1000, 0);
  for (const Place& place : places()) {
    const Encoded all = encode(place, {noise, zeros}, {kBlock, false}, 1);
    const std::size_t enough = all.chunks[0].size();
    const Encoded got = encode(place,
                               {noise, noise, noise, zeros, {}},
                               {kBlock, false},
                               1,
                               {0, enough - 1, enough, all.chunks[1].size(), 3});
    const std::vector<Fault> expected{
        Fault::wrong_size, Fault::wrong_size, Fault::none, Fault::none, Fault::wrong_size};
    EXPECT_EQ(got.faults, expected) << place.name;
    EXPECT_TRUE(got.chunks[1].empty());
    EXPECT_TRUE(got.chunks[2] == all.chunks[0]);
  }
}

TEST(KernelZstdEncode, RefusesWhatTheFormatHasNoWordFor) {
  const Frame large{nullptr, std::uint64_t{1} << 32, nullptr, 0}, empty{};
  for (const Place& place : places()) {
    const auto queue = place.make_queue(1);
    const auto run = [&](const Frame& frame, std::uint32_t block_nbytes) {
      place.kernels->zstd_encode(*queue, {{&frame, 1}, nullptr, nullptr}, {block_nbytes, false});
    };
    EXPECT_THROW(run(large, kBlock), Error);
    EXPECT_THROW(run(empty, kBlock + 1), Error);
    EXPECT_THROW(run(empty, 1023), Error);
  }
}

}  // namespace
}  // namespace headrace::test
