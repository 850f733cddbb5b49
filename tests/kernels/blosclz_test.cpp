#include <blosc.h>
#include <gtest/gtest.h>

#include "kernels/lz_data.h"

namespace headrace::test {
namespace {

constexpr std::size_t kStreamAt = 16 + 4 + 4;  // of a chunk of one block that is not split

// The one stream of a chunk; empty when it is stored.
Bytes compress(const Bytes& bytes, int clevel) {
  Bytes chunk(bytes.size() + BLOSC_MAX_OVERHEAD);
  const int n = blosc_compress_ctx(clevel,
                                   BLOSC_NOSHUFFLE,
                                   1,
                                   bytes.size(),
                                   bytes.data(),
                                   chunk.data(),
                                   chunk.size(),
                                   "blosclz",
                                   bytes.size(),
                                   1);
  EXPECT_GT(n, 0);
  if ((chunk[2] & 2) != 0 || n <= static_cast<int>(kStreamAt)) return {};
  std::uint32_t blocksize = 0, stream_nbytes = 0;
  std::memcpy(&blocksize, &chunk[8], 4);
  std::memcpy(&stream_nbytes, &chunk[20], 4);
  if (blocksize < bytes.size() || stream_nbytes == bytes.size()) return {};
  const auto at = chunk.begin() + kStreamAt;
  return {at, at + stream_nbytes};
}

// c-blosc gives its codec only in its container.
bool library_decodes(const Bytes& stream, std::size_t n, Bytes& bytes) {
  Bytes chunk{2, 1, 0x10, 1};
  const auto put = [&](std::size_t value) {
    for (int i = 0; i < 4; ++i) chunk.push_back(static_cast<std::uint8_t>(value >> 8 * i));
  };
  put(n);
  put(n);
  put(kStreamAt + stream.size());
  put(20);
  put(stream.size());
  chunk.insert(chunk.end(), stream.begin(), stream.end());
  bytes.assign(n, 0x5a);
  Bytes again(n, 0xa5);
  const auto run = [&](Bytes& to) {
    return blosc_decompress_ctx(chunk.data(), to.data(), to.size(), 1) == static_cast<int>(n);
  };
  return stream.size() != n && run(bytes) && run(again) && bytes == again;
}

void expect_as_library(const std::vector<Bytes>& streams, std::size_t nbytes) {
  test::expect_as_library(&Kernels::blosclz, library_decodes, streams, nbytes);
}

TEST(BloscLz, DecodesWhatTheLibraryWrites) {
  std::vector<Bytes> streams, originals;
  for (const Sample& sample : lz_samples())
    for (const int clevel : {1, 5, 9}) {
      const Bytes stream = compress(sample.bytes, clevel);
      if (stream.empty()) continue;
      streams.push_back(stream);
      originals.push_back(sample.bytes);
    }
  EXPECT_GT(streams.size(), 10u);
  for (const Place& place : places())
    for (std::uint64_t seed = 0; seed < 3; ++seed)
      expect_decodes(place, place.kernels->blosclz, streams, originals, seed);
}

TEST(BloscLz, DecodesDistancesOfTwoBytesMore) {
  Bytes stream, original = random_bytes(32 * 1'000, 1), expected;
  for (std::size_t i = 0; i < original.size(); i += 32) {
    stream.push_back(31);
    const auto run = original.begin() + static_cast<std::ptrdiff_t>(i);
    stream.insert(stream.end(), run, run + 32);
  }
  for (const unsigned distance : {8'191u, 8'192u, 9'001u, 30'000u}) {
    const unsigned more = distance < 8'192 ? 0 : distance - 8'192, in_13 = distance - more - 1;
    stream.push_back(static_cast<std::uint8_t>(3 << 5 | in_13 >> 8));  // a match of 5
    stream.push_back(static_cast<std::uint8_t>(in_13));
    if (in_13 == 8'191) {
      stream.push_back(static_cast<std::uint8_t>(more >> 8));
      stream.push_back(static_cast<std::uint8_t>(more));
    }
    for (int i = 0; i < 5; ++i) original.push_back(original[original.size() - distance]);
  }
  stream.insert(stream.end(), {0, 7});
  original.push_back(7);
  ASSERT_TRUE(library_decodes(stream, original.size(), expected));
  EXPECT_EQ(original, expected);
  for (const Place& place : places())
    expect_decodes(place, place.kernels->blosclz, {stream}, {original});
}

TEST(BloscLz, TruncationAtEveryLengthIsAFault) {
  const Bytes original = text(2'000, 3), stream = compress(original, 9);
  ASSERT_FALSE(stream.empty());
  std::vector<Bytes> streams;
  for (std::size_t n = 0; n <= stream.size(); ++n)
    streams.emplace_back(stream.begin(), stream.begin() + static_cast<std::ptrdiff_t>(n));
  expect_as_library(streams, original.size());
}

TEST(BloscLz, EveryChangedByteIsAsTheLibraryHasIt) {
  const Bytes original = text(1'500, 4), stream = compress(original, 9);
  ASSERT_FALSE(stream.empty());
  std::vector<Bytes> streams;
  for (std::size_t i = 0; i < stream.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      streams.push_back(stream);
      streams.back()[i] = static_cast<std::uint8_t>(streams.back()[i] ^ 1 << bit);
    }
  expect_as_library(streams, original.size());
}

TEST(BloscLz, TheLastTokenIsLiterals) {
  const Bytes stream{3, 1, 2, 3, 4, 1 << 5, 3};  // 4 literals, a match of 3 bytes
  expect_as_library({stream}, 7);
  Bytes more = stream;
  more.insert(more.end(), {0, 9});
  expect_as_library({more}, 8);
}

}  // namespace
}  // namespace headrace::test
