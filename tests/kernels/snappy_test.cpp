#include <gtest/gtest.h>
#include <snappy-c.h>

#include "kernels/lz_data.h"

namespace headrace::test {
namespace {

Bytes compress(const Bytes& bytes) {
  std::size_t n = snappy_max_compressed_length(bytes.size());
  Bytes stream(n);
  EXPECT_EQ(snappy_compress(reinterpret_cast<const char*>(bytes.data()),
                            bytes.size(),
                            reinterpret_cast<char*>(stream.data()),
                            &n),
            SNAPPY_OK);
  stream.resize(n);
  return stream;
}

bool library_decodes(const Bytes& stream, std::size_t n, Bytes& bytes) {
  const auto* from = reinterpret_cast<const char*>(stream.data());
  std::size_t said = 0;
  bytes.assign(n, 0);
  return snappy_uncompressed_length(from, stream.size(), &said) == SNAPPY_OK && said == n &&
         snappy_uncompress(from, stream.size(), reinterpret_cast<char*>(bytes.data()), &said) ==
             SNAPPY_OK;
}

void expect_as_library(const std::vector<Bytes>& streams, std::size_t nbytes) {
  test::expect_as_library(&Kernels::snappy, library_decodes, streams, nbytes);
}

TEST(Snappy, DecodesWhatTheLibraryWrites) {
  std::vector<Bytes> streams, originals;
  for (const Sample& sample : lz_samples()) {
    streams.push_back(compress(sample.bytes));
    originals.push_back(sample.bytes);
  }
  for (const Place& place : places())
    for (std::uint64_t seed = 0; seed < 3; ++seed)
      expect_decodes(place, place.kernels->snappy, streams, originals, seed);
}

TEST(Snappy, DecodesOneLargeStream) {
  const Bytes original = packed_field(1 << 20, 1);
  for (const Place& place : places())
    expect_decodes(place, place.kernels->snappy, {compress(original)}, {original});
}

TEST(Snappy, DecodesEveryKindOfToken) {
  // The library writes no literals of more than 2^16 bytes and no copies of 4 bytes of distance.
  Bytes stream{0x8c, 0xa0, 0x06};  // 102,412
  Bytes original = random_bytes(102'400, 1);
  stream.insert(stream.end(), {62 << 2, 0xff, 0x8f, 0x01});
  stream.insert(stream.end(), original.begin(), original.end());
  stream.insert(stream.end(), {11 << 2 | 3, 0x00, 0x90, 0x01, 0x00});
  original.insert(original.end(), original.begin(), original.begin() + 12);
  for (const Place& place : places())
    expect_decodes(place, place.kernels->snappy, {stream}, {original});
}

TEST(Snappy, TruncationAtEveryLengthIsAFault) {
  const Bytes original = echoes(2'000, 3), stream = compress(original);
  std::vector<Bytes> streams;
  for (std::size_t n = 0; n <= stream.size(); ++n)
    streams.emplace_back(stream.begin(), stream.begin() + static_cast<std::ptrdiff_t>(n));
  expect_as_library(streams, original.size());
}

TEST(Snappy, EveryChangedByteIsAsTheLibraryHasIt) {
  const Bytes original = echoes(900, 4), stream = compress(original);
  std::vector<Bytes> streams;
  for (std::size_t i = 0; i < stream.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      streams.push_back(stream);
      streams.back()[i] = static_cast<std::uint8_t>(streams.back()[i] ^ 1 << bit);
    }
  expect_as_library(streams, original.size());
}

}  // namespace
}  // namespace headrace::test
