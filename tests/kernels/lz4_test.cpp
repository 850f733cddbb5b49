#include <gtest/gtest.h>
#include <lz4.h>
#include <lz4hc.h>

#include "kernels/lz_data.h"

namespace headrace::test {
namespace {

// Levels: 0 and up HC, below liblz4's accelerations.
Bytes compress(const Bytes& bytes, int level) {
  Bytes block(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(bytes.size()))));
  const auto* from = reinterpret_cast<const char*>(bytes.data());
  auto* to = reinterpret_cast<char*>(block.data());
  const int n = static_cast<int>(bytes.size()), room = static_cast<int>(block.size());
  const int size = level < 0 ? LZ4_compress_fast(from, to, n, room, -level)
                             : LZ4_compress_HC(from, to, n, room, level);
  EXPECT_GT(size, 0);
  block.resize(static_cast<std::size_t>(size));
  return block;
}

// liblz4 takes matches of distance 0 and fills them with zeros or leaves the memory as it was.
bool has_distance_0(const Bytes& block) {
  std::size_t at = 0;
  const auto run = [&](std::size_t n) {
    if (n == 15) do
        n += block[at];
      while (block[at++] == 255);
    return n;
  };
  while (at < block.size()) {
    const unsigned token = block[at++];
    at += run(token >> 4);
    if (at >= block.size()) break;
    if (block[at] == 0 && block[at + 1] == 0) return true;
    at += 2;
    run(token & 15);
  }
  return false;
}

// What liblz4 makes of a block that must decode to n bytes.
bool library_decodes(const Bytes& block, std::size_t n, Bytes& bytes) {
  bytes.assign(n, 0);
  return LZ4_decompress_safe(reinterpret_cast<const char*>(block.data()),
                             reinterpret_cast<char*>(bytes.data()),
                             static_cast<int>(block.size()),
                             static_cast<int>(n)) == static_cast<int>(n) &&
         !has_distance_0(block);
}

TEST(Lz4, DecodesWhatTheLibraryWrites) {
  std::vector<Bytes> blocks, originals;
  for (const Sample& sample : lz_samples())
    for (const int level : {-1, -10, 9}) {
      blocks.push_back(compress(sample.bytes, level));
      originals.push_back(sample.bytes);
    }
  for (const Place& place : places())
    if (place.kernels->lz4) expect_decodes(place, place.kernels->lz4, blocks, originals);
}

// A Decode is a function without a state: whose kernels it calls stands here.
const Kernels* kernels_of_planes = nullptr;
void decode_planes(Queue& queue, const DecodeBatch& batch) {
  DecodeBatch with_hint = batch;
  with_hint.planes = true;
  kernels_of_planes->lz4(queue, with_hint);
}
Decode decoder_of_planes(const Place& place) {
  kernels_of_planes = place.kernels;
  return decode_planes;
}

TEST(Lz4, AHintChangesNothing) {
  std::vector<Bytes> blocks, originals;
  for (const Sample& sample : lz_samples()) {
    blocks.push_back(compress(sample.bytes, -1));
    originals.push_back(sample.bytes);
  }
  for (const Place& place : places())
    for (std::uint64_t seed = 0; seed < 3; ++seed)
      expect_decodes(place, decoder_of_planes(place), blocks, originals, seed);
}

TEST(Lz4, DecodesTokensAsDenseAsTheyCanBe) {
  Bytes block{0xf0, 241}, original = random_bytes(256, 1);  // then matches of 4 bytes
  block.insert(block.end(), original.begin(), original.end());
  for (int i = 0; i < 4'000; ++i) {
    const std::size_t distance = 1 + static_cast<std::size_t>(i) * 7919 % 250;
    if (i) block.push_back(0);
    block.push_back(static_cast<std::uint8_t>(distance));
    block.push_back(0);
    for (int k = 0; k < 4; ++k) original.push_back(original[original.size() - distance]);
  }
  block.insert(block.end(), {0x80, 1, 2, 3, 4, 5, 6, 7, 8});
  original.insert(original.end(), {1, 2, 3, 4, 5, 6, 7, 8});
  for (const Place& place : places()) {
    expect_decodes(place, place.kernels->lz4, {block}, {original});
    expect_decodes(place, decoder_of_planes(place), {block}, {original});
  }
}

TEST(Lz4, DecodesOneLargeBlock) {
  for (const Bytes& original : {packed_field(1 << 20, 1), byte_planes(packed_field(1 << 20, 2), 4)})
    for (const Place& place : places())
      expect_decodes(place, place.kernels->lz4, {compress(original, -1)}, {original});
}

TEST(Lz4, EverySeedGivesTheSame) {
  const Bytes original = echoes(30'000, 1), other = byte_planes(packed_field(20'000, 2), 4);
  for (const Place& place : places())
    for (std::uint64_t seed = 0; seed < 10; ++seed)
      expect_decodes(place,
                     place.kernels->lz4,
                     {compress(original, -1), compress(other, 9)},
                     {original, other},
                     seed);
}

TEST(Lz4, ManySmallBlocksGoALaneEach) {
  std::vector<Bytes> blocks, originals;
  std::vector<std::size_t> nbytes;
  for (std::size_t i = 0; i < 16'100; ++i) {
    originals.push_back(echoes(i % 97, i));
    blocks.push_back(compress(originals.back(), -1));
    if (i % 1000 == 7) blocks.back().pop_back();
    nbytes.push_back(originals.back().size());
  }
  for (const Place& place : places()) {
    const Decoded got = decode(place, place.kernels->lz4, blocks, nbytes);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (i % 1000 == 7) {
        EXPECT_NE(got.faults[i], Fault::none) << i;
      } else {
        EXPECT_EQ(got.faults[i], Fault::none) << i;
        EXPECT_EQ(got.chunks[i], originals[i]) << i;
      }
    }
  }
}

void expect_as_library(const std::vector<Bytes>& blocks, std::size_t nbytes) {
  test::expect_as_library(&Kernels::lz4, library_decodes, blocks, nbytes);
}

TEST(Lz4, TruncationAtEveryLengthIsAFault) {
  const Bytes original = echoes(2'000, 3), block = compress(original, -1);
  std::vector<Bytes> blocks;
  for (std::size_t n = 0; n <= block.size(); ++n)
    blocks.emplace_back(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(n));
  expect_as_library(blocks, original.size());
}

TEST(Lz4, EveryChangedByteIsAsTheLibraryHasIt) {
  const Bytes original = echoes(700, 4), block = compress(original, -1);
  std::vector<Bytes> blocks;
  for (std::size_t i = 0; i < block.size(); ++i)
    for (const int change : {1, 2, 16, 0x80, 0xff}) {
      blocks.push_back(block);
      blocks.back()[i] = static_cast<std::uint8_t>(blocks.back()[i] ^ change);
    }
  expect_as_library(blocks, original.size());
}

TEST(Lz4, EndsOfBlocksAreAsTheLibraryHasThem) {
  // One match at the end with more or fewer literals after it than the format wants.
  for (std::size_t literals = 0; literals < 10; ++literals)
    for (std::uint8_t match = 0; match < 8; ++match) {
      Bytes block{static_cast<std::uint8_t>(0x40 | match), 1, 2, 3, 4, 1, 0};
      block.push_back(static_cast<std::uint8_t>(literals << 4));
      block.insert(block.end(), literals, 6);
      expect_as_library({block}, 4 + 4 + match + literals);
    }
}

TEST(Lz4, WrongSizesAreFaults) {
  const Bytes original = text(5'000, 1), block = compress(original, -1);
  for (const Place& place : places())
    for (const std::size_t n : {4'999, 5'001, 0, 100'000}) {
      const Decoded got = decode(place, place.kernels->lz4, {block}, {n});
      EXPECT_EQ(got.faults[0], Fault::wrong_size) << n;
    }
}

TEST(Lz4, ADistanceOfZeroIsMalformed) {
  Bytes block{0x48, 1, 2, 3, 4, 0, 0, 0x50, 1, 2, 3, 4, 5};
  for (const Place& place : places())
    EXPECT_EQ(decode(place, place.kernels->lz4, {block}, {21}).faults[0], Fault::malformed);
}

TEST(Lz4, HugeLengthsSaturate) {
  Bytes block(1 << 20, 0xff);  // 16 MiB of literals said, of 255 a byte
  const Bytes small = compress(text(300, 1), -1);
  for (const Place& place : places()) {
    const Decoded got = decode(place, place.kernels->lz4, {block, small}, {1 << 20, 300});
    EXPECT_EQ(got.faults[0], Fault::truncated);
    EXPECT_EQ(got.faults[1], Fault::none);
  }
}

}  // namespace
}  // namespace headrace::test
