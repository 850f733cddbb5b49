#include "kernels/deflate_kit.h"

namespace headrace::test {
namespace {

class DeflateKernel : public DeflatePlaces {};
INSTANTIATE_TEST_SUITE_P(Places,
                         DeflateKernel,
                         testing::Range(std::size_t{0}, places().size()),
                         [](const auto& test) { return places()[test.param].name; });

TEST_P(DeflateKernel, DecodesWhatZlibWrites) {
  std::vector<Bytes> encoded, originals;
  for (const auto& kind : kKinds) {
    for (std::size_t nbytes : {0u, 1u, 2u, 3u, 100u, 5000u, 16384u, 65535u, 65536u, 65537u}) {
      for (int level : {0, 1, 6, 9}) {
        if (nbytes > 5000 && level == 9) continue;
        originals.push_back(kind(nbytes));
        encoded.push_back(compress(originals.back(), {.level = level}));
      }
    }
  }
  expect_decodes(place(), place().kernels->zlib, encoded, originals);
}

TEST_P(DeflateKernel, DecodesEveryStrategyAndForm) {
  for (Form form : {Form::raw, Form::zlib, Form::gzip}) {
    std::vector<Bytes> encoded, originals;
    for (const auto& kind : kKinds) {
      for (int strategy : {Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE, Z_FIXED}) {
        originals.push_back(kind(20'000));
        encoded.push_back(
            compress(originals.back(), {.strategy = strategy, .window_bits = window_bits(form)}));
      }
    }
    expect_decodes(place(), decoder(place(), form), encoded, originals);
  }
}

TEST_P(DeflateKernel, DecodesWhatLibdeflateWrites) {
  std::vector<Bytes> encoded, originals;
  for (const auto& kind : kKinds) {
    for (int level = 1; level <= 12; ++level) {
      originals.push_back(kind(30'000));
      encoded.push_back(compress_libdeflate(originals.back(), level));
    }
  }
  expect_decodes(place(), place().kernels->gzip, encoded, originals);
}

// One at a time they get the most threads.
TEST_P(DeflateKernel, DecodesLargeChunks) {
  for (const auto& kind : kKinds) {
    const Bytes original = kind((1 << 19) + 5);
    expect_decodes(place(), place().kernels->zlib, {compress(original, {})}, {original});
  }
}

// So few that the blocks of each are searched for.
TEST_P(DeflateKernel, DecodesAFewLargeChunks) {
  std::vector<Bytes> encoded, originals;
  for (std::size_t i = 0; i < 3; ++i) {
    originals.push_back(field(300'000 + 1'001 * i));
    encoded.push_back(compress(originals.back(), {}));
  }
  expect_decodes(place(), place().kernels->zlib, encoded, originals);
}

// Blocks of a single stream are searched for; here are some that cannot be found, and some that are
// behind the first member.
TEST_P(DeflateKernel, DecodesBlocksOfAllKindsInOneStream) {
  Bytes original;
  for (const auto& kind : kKinds) {
    const Bytes part = kind(70'000);
    original.insert(original.end(), part.begin(), part.end());
  }
  const auto check = [&](const Bytes& encoded, const Bytes& wanted) {
    for (std::uint64_t seed = 0; seed < 2; ++seed)
      expect_decodes(place(), place().kernels->gzip, {encoded}, {wanted}, seed);
  };
  for (int level : {1, 9}) check(compress_libdeflate(original, level), original);
  const Bytes zlib = compress(original, {.window_bits = 31});
  check(joined({zlib, compress_libdeflate(original, 1), zlib}),
        joined({original, original, original}));
  for (std::size_t at : {zlib.size() / 4, zlib.size() / 2, zlib.size() - 10'000}) {
    Bytes bad = zlib;
    bad[at] ^= 4;
    expect_zlibs_verdict(place(), Form::gzip, {bad}, original.size());
  }
}

TEST_P(DeflateKernel, DecodesWithEachNumberOfThreads) {
  for (std::size_t count : {1u, 12u, 17u, 100u}) {
    std::vector<Bytes> encoded, originals;
    for (std::size_t i = 0; i < count; ++i) {
      originals.push_back(kKinds[i % kKinds.size()](400000 / (count + 9) + i));
      encoded.push_back(compress(originals.back(), {}));
    }
    for (std::uint64_t seed = 0; seed < 5; ++seed)
      expect_decodes(place(), place().kernels->zlib, encoded, originals, seed);
  }
}

// Output goes to the target by words: matches of all short lengths begin and end at each of their
// bytes, behind runs of literals of none, some and several words.
TEST_P(DeflateKernel, DecodesShortMatchesAtEveryByteOfAWord) {
  std::vector<Bytes> encoded, originals;
  for (std::size_t i = 0; i < 64; ++i) {
    std::mt19937_64 random(i);
    Bytes original = noise(40);
    while (original.size() < 3000) {
      const std::size_t nbytes = 3 + random() % 8, from = random() % (original.size() - nbytes);
      for (std::size_t k = 0; k < nbytes; ++k) original.push_back(original[from + k]);
      for (std::size_t k = random() % 11; k > 0; --k)
        original.push_back(static_cast<std::uint8_t>(random()));
    }
    originals.push_back(original);
    encoded.push_back(compress(original, {.level = 9, .window_bits = -15}));
  }
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    expect_decodes(place(), place().kernels->deflate, encoded, originals, seed);
}

// Enough of them, of equal size: their tiles are taken in order.
TEST_P(DeflateKernel, DecodesManyStreams) {
  std::vector<Bytes> encoded, originals;
  for (std::size_t i = 0; i < 100; ++i) {
    originals.push_back(kKinds[i % kKinds.size()](40'000 + i));
    encoded.push_back(compress(originals.back(), {}));
  }
  expect_decodes(place(), place().kernels->zlib, encoded, originals);
}

TEST_P(DeflateKernel, DecodesFlushes) {
  std::vector<Bytes> encoded, originals;
  for (int flush : {Z_PARTIAL_FLUSH, Z_SYNC_FLUSH, Z_FULL_FLUSH, Z_BLOCK}) {
    for (std::size_t every : {1u, 100u, 4000u}) {
      originals.push_back(sentences(every * 25 + 7));
      encoded.push_back(compress(originals.back(), {.flush = flush, .flush_every = every}));
    }
  }
  expect_decodes(place(), place().kernels->zlib, encoded, originals);
}

TEST_P(DeflateKernel, DecodesEveryWindow) {
  std::vector<Bytes> encoded, originals;
  for (int bits = 9; bits <= 15; ++bits) {
    originals.push_back(field(100'000));
    encoded.push_back(compress(originals.back(), {.window_bits = bits}));
  }
  expect_decodes(place(), place().kernels->zlib, encoded, originals);
}

TEST_P(DeflateKernel, DecodesTheFarthestMatches) {
  Bytes original = noise(32'768);
  original.insert(original.end(), original.begin(), original.end());
  original.insert(original.end(), original.begin(), original.begin() + 40'000);
  // libdeflate takes distances of 32,768, zlib stops 262 short of it.
  expect_decodes(place(), place().kernels->gzip, {compress_libdeflate(original, 9)}, {original});
}

Bytes gzip_member(const Bytes& data, bool extra, bool name, bool comment, bool crc) {
  Bytes field = noise(300), title = sentences(40), remark = sentences(400);
  title.push_back(0);
  remark.push_back(0);
  gz_header header{};
  header.time = 1234567890;
  header.os = 3;
  header.hcrc = crc;
  if (extra) {
    header.extra = field.data();
    header.extra_len = static_cast<uInt>(field.size());
  }
  if (name) header.name = title.data();
  if (comment) header.comment = remark.data();
  return compress(data, {.window_bits = 31}, &header);
}

TEST_P(DeflateKernel, DecodesEveryGzipHeader) {
  std::vector<Bytes> encoded, originals;
  for (unsigned flags = 0; flags < 16; ++flags) {
    originals.push_back(sentences(100 + flags));
    encoded.push_back(gzip_member(originals.back(), flags & 1, flags & 2, flags & 4, flags & 8));
  }
  expect_decodes(place(), place().kernels->gzip, encoded, originals);
}

TEST_P(DeflateKernel, DecodesSeveralGzipMembers) {
  std::vector<Bytes> members, parts;
  for (std::size_t nbytes : {0u, 50'000u, 1u, 0u, 20'000u, 77u}) {
    parts.push_back(sentences(nbytes));
    members.push_back(gzip_member(parts.back(), nbytes & 1, true, false, nbytes & 1));
  }
  const Bytes all = joined(members);
  expect_decodes(place(), place().kernels->gzip, {all}, {joined(parts)});
  const Bytes padded = joined({all, Bytes(5000, 0)});
  expect_decodes(place(), place().kernels->gzip, {padded}, {joined(parts)});
  // A match must not reach into the member before.
  Bytes raw = compress(sentences(500), {.window_bits = -15});
  EXPECT_EQ(decode(place(), place().kernels->gzip, {joined({all, raw})}, {joined(parts).size()})
                .faults[0],
            Fault::malformed);
}

}  // namespace
}  // namespace headrace::test
