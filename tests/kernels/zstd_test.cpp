#include "kernels/zstd_frames.h"

namespace headrace::test {
namespace {

void expect_all(const std::vector<Bytes>& encoded,
                const std::vector<Bytes>& originals,
                std::uint64_t seed = 1) {
  for (const Place& place : places())
    expect_decodes(place, place.kernels->zstd, encoded, originals, seed);
}

TEST(ZstdKernels, EveryLevelAndKindOfData) {
  std::set<std::string> seen;
  for (const Kind& kind : kinds()) {
    std::vector<Bytes> originals, encoded;
    for (int level : {-5, 1, 3, 5, 9, 13, 19})
      for (std::size_t nbytes : {1500, 40000}) {
        originals.push_back(kind.make(nbytes, static_cast<std::uint64_t>(level + 10)));
        encoded.push_back(compress(originals.back(), {.level = level}));
        seen.merge(features(encoded.back(), nbytes));
      }
    SCOPED_TRACE(kind.name);
    expect_all(encoded, originals);
  }
  expect_features(seen,
                  {"no sequences",
                   "many sequences",
                   "4 streams",
                   "1 stream",
                   "fse weights",
                   "direct weights",
                   "predefined",
                   "fse table"});
}

TEST(ZstdKernels, SizesAroundThoseOfBlocks) {
  for (const auto make : {packed_field, text}) {
    std::vector<Bytes> originals, encoded;
    for (std::size_t nbytes : {0, 1, 2, 3, 7, 31, 32, 33, 255, 256, 65535, 131071, 131072, 131073})
      originals.push_back(make(nbytes, nbytes));
    for (const Bytes& original : originals)
      encoded.push_back(compress(original, {.checksum = true}));
    expect_all(encoded, originals);
  }
}

TEST(ZstdKernels, ManyBlocks) {
  const Bytes field = packed_field(1 << 20, 7);
  const Bytes mixed = text(300000, 8) + random_bytes(200000, 9) + Bytes(400000, 0) + field;
  const Bytes encoded = compress(mixed, {.level = 9, .checksum = true});
  expect_features(features(encoded, mixed.size()), {"rle block"});
  expect_all({compress(field), encoded}, {field, mixed});
}

// Blocks that end anywhere, tables repeated from one to the next, frames of unknown size.
TEST(ZstdKernels, FlushedStreams) {
  std::set<std::string> seen;
  std::vector<Bytes> originals, encoded;
  for (const Kind& kind : kinds())
    for (std::size_t every : {37, 700, 5001}) {
      originals.push_back(kind.make(every * 20 + 11, every));
      encoded.push_back(compress(
          originals.back(),
          {.level = 6, .checksum = every == 700, .content_size = false, .flush_every = every}));
      seen.merge(features(encoded.back(), originals.back().size()));
    }
  for (std::uint64_t seed = 1; seed < 3; ++seed) expect_all(encoded, originals, seed);
  expect_features(seen, {"treeless", "repeated table", "rle table"});
}

// More blocks than one launch of tiles takes of a source: the second reads what the first wrote.
TEST(ZstdKernels, ThousandsOfTinyBlocks) {
  const Bytes original = text(9000, 3);
  const Bytes encoded = compress(original, {.level = 1, .flush_every = 13});
  expect_all({encoded}, {original});
}

// Enough blocks that several share a leader warp.
TEST(ZstdKernels, BatchesOfManyBlocks) {
  for (std::size_t count : {350, 1300}) {
    std::vector<Bytes> originals, encoded;
    for (std::size_t i = 0; i < count; ++i) {
      originals.push_back(i % 3 ? text(100 + i % 500, i) : packed_field(300 + i % 700, i));
      encoded.push_back(
          compress(originals.back(), {.flush_every = originals.back().size() / 2 + 1}));
    }
    expect_all(encoded, originals);
  }
}

TEST(ZstdKernels, SmallSourcesBesideALargeOne) {
  const Bytes large(3 << 20, 1);
  for (std::size_t count : {1, 6}) {
    std::vector<Bytes> originals{large};
    for (std::size_t i = 0; i < count; ++i) originals.push_back(packed_field(70001, i));
    originals.push_back({});
    std::vector<Bytes> encoded;
    for (const Bytes& original : originals) encoded.push_back(compress(original));
    expect_all(encoded, originals);
  }
}

// Runs of literals and of short patterns, some long enough to be made without entries; of many
// sources, so that each is decoded in order, in tiles of each size.
TEST(ZstdKernels, LongRuns) {
  for (const std::size_t more : {0, 90000}) {
    std::vector<Bytes> originals, encoded;
    for (std::size_t i = 0; i < 48; ++i) {
      const std::size_t period = i % 24 + 1;
      Bytes pattern = random_bytes(period, i), repeated;
      while (repeated.size() < 1018 + i)
        repeated.insert(repeated.end(), pattern.begin(), pattern.end());
      originals.push_back(random_bytes(1000 + i, i) + repeated + random_bytes(40 + i, i + 50) +
                          repeated + repeated + text(300, i) + Bytes(i < 8 ? more : 0, 7) +
                          pattern);
      encoded.push_back(compress(originals.back(), {.level = i % 2 ? 3 : 19}));
    }
    expect_all(encoded, originals, more);
  }
}

TEST(ZstdKernels, MatchesFromFarAway) {
  const Bytes once = random_bytes(600000, 5);
  const Bytes original = once + text(1000, 6) + once;
  expect_all({compress(original, {.level = 3, .window_log = 27, .long_distance = true}),
              compress(original, {.level = 19, .window_log = 10})},
             {original, original});
}

TEST(ZstdKernels, SeveralFramesAndSkippableOnes) {
  const Bytes skippable{0x53, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 1, 2, 3, 4, 5};
  const Bytes empty_skippable{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0};
  const Bytes a = packed_field(5000, 1), b = text(3000, 2), c(100, 7);
  const Bytes empty = compress({}, {.checksum = true});
  expect_all(
      {compress(a, {.checksum = true}) + compress(b) + compress(c),
       skippable + compress(b) + empty_skippable + compress(b, {.checksum = true}) + skippable,
       skippable,
       empty,
       empty + compress(c) + empty,
       {}},
      {a + b + c, b + b, {}, {}, c, {}});
}

TEST(ZstdKernels, NoFramesAtAll) {
  for (const Place& place : places()) {
    const auto queue = place.make_queue(1);
    place.kernels->zstd(*queue, {});
    queue->synchronize();
  }
}

}  // namespace
}  // namespace headrace::test
