#include <blosc.h>
#include <gtest/gtest.h>

#include "kernels/lz_data.h"

namespace headrace::test {
namespace {

struct Settings {
  const char* inner = "lz4";
  int clevel = 5;
  int shuffle = BLOSC_SHUFFLE;
  std::size_t typesize = 4;
  std::size_t blocksize = 0;
};

Bytes compress(const Bytes& bytes, const Settings& s) {
  Bytes chunk(bytes.size() + BLOSC_MAX_OVERHEAD);
  const int n = blosc_compress_ctx(s.clevel,
                                   s.shuffle,
                                   s.typesize,
                                   bytes.size(),
                                   bytes.data(),
                                   chunk.data(),
                                   chunk.size(),
                                   s.inner,
                                   s.blocksize,
                                   1);
  EXPECT_GT(n, 0);
  chunk.resize(static_cast<std::size_t>(n));
  return chunk;
}

bool library_decodes(const Bytes& chunk, std::size_t n, Bytes& bytes) {
  std::size_t said = 0;
  if (blosc_cbuffer_validate(chunk.data(), chunk.size(), &said) < 0 || said != n) return false;
  bytes.assign(n, 0x5a);
  Bytes again(n, 0xa5);
  const auto run = [&](Bytes& to) {
    return blosc_decompress_ctx(chunk.data(), to.data(), to.size(), 1) == static_cast<int>(n);
  };
  return run(bytes) && run(again) && bytes == again;  // bytes that it never wrote differ
}

// Whether what decodes the streams is there.
bool has_inner(const Place& place, const std::string& inner) {
  const Kernels& k = *place.kernels;
  if (inner == "blosclz") return k.blosclz;
  if (inner == "snappy") return k.snappy;
  if (inner == "zlib") return k.zlib;
  if (inner == "zstd") return k.zstd;
  return k.lz4;
}

constexpr const char* kInners[] = {"lz4", "lz4hc", "blosclz", "snappy", "zlib", "zstd"};

void expect_decodes_all(const std::string& inner,
                        const std::vector<Bytes>& chunks,
                        const std::vector<Bytes>& originals) {
  for (const Place& place : places()) {
    if (has_inner(place, inner)) {
      expect_decodes(place, place.kernels->blosc, chunks, originals);
      continue;
    }
    std::vector<std::size_t> nbytes;
    for (const Bytes& original : originals) nbytes.push_back(original.size());
    const Decoded got = decode(place, place.kernels->blosc, chunks, nbytes);
    for (std::size_t i = 0; i < chunks.size(); ++i)
      if (got.faults[i] != Fault::unsupported) {
        EXPECT_EQ(got.faults[i], Fault::none) << place.name << " chunk " << i;
        EXPECT_TRUE(got.chunks[i] == originals[i]) << place.name << " chunk " << i;
      }
  }
}

TEST(Blosc, DecodesEveryShuffleOfEveryInnerCodec) {
  for (const char* inner : kInners) {
    std::vector<Bytes> chunks, originals;
    for (const std::size_t typesize : {1, 2, 3, 4, 8, 16, 17, 255})
      for (const int shuffle : {BLOSC_NOSHUFFLE, BLOSC_SHUFFLE, BLOSC_BITSHUFFLE})
        for (const int clevel : {1, 5, 9})
          for (const std::size_t n : {1'000, 20'011}) {
            const Settings settings{inner, clevel, shuffle, typesize, n > 5'000 ? 4096u : 0u};
            originals.push_back(packed_field(n, typesize));
            chunks.push_back(compress(originals.back(), settings));
          }
    SCOPED_TRACE(inner);
    expect_decodes_all(inner, chunks, originals);
  }
}

TEST(Blosc, DecodesEveryKindOfData) {
  for (const char* inner : kInners) {
    std::vector<Bytes> chunks, originals;
    for (const Sample& sample : lz_samples())
      for (const int clevel : {0, 5}) {
        originals.push_back(sample.bytes);
        chunks.push_back(compress(sample.bytes, {inner, clevel}));
      }
    SCOPED_TRACE(inner);
    expect_decodes_all(inner, chunks, originals);
  }
}

TEST(Blosc, DecodesBlocksOfManySizes) {
  std::vector<Bytes> chunks, originals;
  for (const std::size_t blocksize : {128, 512, 1'000, 4'096, 65'536})
    for (const int shuffle : {BLOSC_SHUFFLE, BLOSC_BITSHUFFLE})
      for (const std::size_t n : {4'096, 4'095, 70'003}) {
        originals.push_back(packed_field(n, n));
        chunks.push_back(compress(originals.back(), {"lz4", 5, shuffle, 4, blocksize}));
      }
  expect_decodes_all("lz4", chunks, originals);
}

TEST(Blosc, EverySeedGivesTheSame) {
  const Bytes original = packed_field(30'000, 1);
  for (const Place& place : places())
    for (std::uint64_t seed = 0; seed < 10; ++seed)
      expect_decodes(
          place,
          place.kernels->blosc,
          {compress(original, {}), compress(original, {"lz4", 9, BLOSC_BITSHUFFLE, 2, 4096})},
          {original, original},
          seed);
}

// All chunks of one batch: a bad one must not touch the others. What we do not take of what the
// library takes are LZ4 matches of distance 0, and broken zstd frames of which libzstd does not
// look at every bit: one change in 200 at most makes one.
void expect_as_library(const Place& place,
                       const std::string& inner,
                       const std::vector<Bytes>& chunks,
                       std::size_t nbytes) {
  for (const HostHas host_has : kHostHas) {
    const Decoded got = decode(place,
                               place.kernels->blosc,
                               chunks,
                               std::vector<std::size_t>(chunks.size(), nbytes),
                               1,
                               host_has);
    Bytes expected;
    std::size_t refusals_left = inner == "lz4" || inner == "zstd" ? chunks.size() / 200 : 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      if (library_decodes(chunks[i], nbytes, expected)) {
        if (got.faults[i] == Fault::malformed && refusals_left > 0) {
          --refusals_left;
          continue;
        }
        EXPECT_EQ(got.faults[i], Fault::none) << i;
        EXPECT_EQ(got.chunks[i], expected) << i;
      } else {
        EXPECT_NE(got.faults[i], Fault::none) << i;
      }
    }
  }
}

TEST(Blosc, TruncationAtEveryLengthIsAFault) {
  const Bytes original = text(1'500, 1), chunk = compress(original, {"lz4", 5, BLOSC_SHUFFLE, 2});
  std::vector<Bytes> chunks;
  for (std::size_t n = 0; n <= chunk.size(); ++n) {
    chunks.emplace_back(chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
    chunks.push_back(chunks.back());  // and with a header that knows
    if (n >= 16)
      for (std::size_t i = 0; i < 4; ++i)
        chunks.back()[12 + i] = static_cast<std::uint8_t>(n >> 8 * i);
  }
  for (const Place& place : places()) expect_as_library(place, "lz4", chunks, original.size());
}

TEST(Blosc, EveryChangedByteIsAsTheLibraryHasIt) {
  for (const char* inner : {"lz4", "blosclz", "snappy", "zlib", "zstd"}) {
    const Bytes original = text(700, 1),
                chunk = compress(original, {inner, 5, BLOSC_SHUFFLE, 2, 300});
    std::vector<Bytes> chunks;
    for (std::size_t i = 0; i < chunk.size(); ++i)
      for (int bit = 0; bit < 8; ++bit) {
        if (i >= 28 && (i + static_cast<std::size_t>(bit)) % 8 != 0) continue;  // one bit a byte
        chunks.push_back(chunk);
        chunks.back()[i] = static_cast<std::uint8_t>(chunks.back()[i] ^ 1 << bit);
      }
    SCOPED_TRACE(inner);
    for (const Place& place : places())
      if (has_inner(place, inner)) expect_as_library(place, inner, chunks, original.size());
  }
}

TEST(Blosc, AnotherSizeThanWantedIsAFault) {
  const Bytes chunk = compress(text(800, 1), {});
  for (const Place& place : places())
    for (const std::size_t n : {0, 799, 801})
      EXPECT_EQ(decode(place, place.kernels->blosc, {chunk}, {n}).faults[0], Fault::wrong_size);
}

TEST(Blosc, ManyBlocksOfTheSameStreamAreMalformed) {
  // 10,000 blocks of 4 bytes, the stream of each all that follows.
  Bytes chunk{2, 1, 0x30, 1};
  const auto put = [&](std::size_t value) {
    for (int i = 0; i < 4; ++i) chunk.push_back(static_cast<std::uint8_t>(value >> 8 * i));
  };
  constexpr std::size_t kBlocks = 10'000, kStreamNbytes = 100'000;
  put(4 * kBlocks);
  put(4);
  put(16 + 4 * kBlocks + 4 + kStreamNbytes);
  for (std::size_t i = 0; i < kBlocks; ++i) put(16 + 4 * kBlocks);
  put(kStreamNbytes);
  chunk.resize(chunk.size() + kStreamNbytes);
  for (const Place& place : places())
    EXPECT_EQ(decode(place, place.kernels->blosc, {chunk}, {4 * kBlocks}).faults[0],
              Fault::malformed);
}

TEST(Blosc, Blosc2IsUnsupported) {
  Bytes chunk = compress(text(800, 1), {});
  chunk[2] |= 8;
  for (const Place& place : places())
    EXPECT_EQ(decode(place, place.kernels->blosc, {chunk}, {800}).faults[0], Fault::unsupported);
}

}  // namespace
}  // namespace headrace::test
