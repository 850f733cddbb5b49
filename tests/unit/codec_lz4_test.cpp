#include <gtest/gtest.h>
#include <lz4.h>

#include "codec/lz4_block.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {
namespace {

using kit::Bytes;

void append_length(Bytes& block, std::size_t rest) {
  for (; rest >= 255; rest -= 255) block.push_back(std::byte{255});
  block.push_back(std::byte(rest));
}

// One sequence; `match` 0 for the last, which has none.
void append_sequence(Bytes& block, ConstBytes literals, std::size_t distance, std::size_t match) {
  const std::size_t n = literals.size();
  const std::size_t m = match == 0 ? 0 : match - 4;
  block.push_back(std::byte(std::min<std::size_t>(n, 15) << 4 | std::min<std::size_t>(m, 15)));
  if (n >= 15) append_length(block, n - 15);
  block.insert(block.end(), literals.begin(), literals.end());
  if (match == 0) return;
  block.push_back(std::byte(distance));
  block.push_back(std::byte(distance >> 8));
  if (m >= 15) append_length(block, m - 15);
}

// A few literals, a match, and `rest` literals, in LZ4 and plain.
struct Sample {
  Bytes block, plain;
  Sample(std::size_t literals, std::size_t distance, std::size_t match, std::size_t rest) {
    plain = kit::noise(literals);
    append_sequence(block, plain, distance, match);
    for (std::size_t i = 0; i < match; ++i) {
      plain.push_back(distance == 0 ? std::byte{0} : plain[plain.size() - distance]);
    }
    const Bytes end = kit::noise(rest, 2);
    append_sequence(block, end, 0, 0);
    plain.insert(plain.end(), end.begin(), end.end());
  }
};

constexpr std::byte kGuard{0xA5};

// Decodes into memory with guards behind it.
std::optional<Bytes> decode(ConstBytes block,
                            std::size_t nbytes,
                            bool (*decoder)(ConstBytes, MutableBytes)) {
  Bytes memory(nbytes + 64, kGuard);
  const bool good = decoder(block, MutableBytes(memory).first(nbytes));
  for (std::size_t i = nbytes; i < memory.size(); ++i) EXPECT_EQ(memory[i], kGuard) << i;
  if (!good) return std::nullopt;
  memory.resize(nbytes);
  return memory;
}

// Every distance that is copied in a way of its own, lengths around every step, at the end of the
// output and far from it.
TEST(Lz4Block, CopiesMatches) {
  for (std::size_t distance = 1; distance <= 40; ++distance) {
    for (std::size_t match : {4u, 5u, 8u, 17u, 18u, 19u, 20u, 31u, 32u, 33u, 64u, 300u, 700u}) {
      for (std::size_t rest : {5u, 40u, 200u}) {
        const Sample sample(40 + distance % 3, distance, match, rest);
        SCOPED_TRACE(std::to_string(distance) + " " + std::to_string(match) + " " +
                     std::to_string(rest));
        const std::size_t n = sample.plain.size();
        ASSERT_EQ(decode(sample.block, n, lz4_decode_block), sample.plain);
        for (std::size_t end = 0; end <= n; end += end < 120 ? 1 : 97) {
          const auto prefix = decode(sample.block, end, lz4_decode_prefix);
          ASSERT_EQ(prefix, Bytes(sample.plain.begin(), sample.plain.begin() + end)) << end;
        }
        EXPECT_EQ(decode(sample.block, n + 1, lz4_decode_block), std::nullopt);
        EXPECT_EQ(decode(sample.block, n - 1, lz4_decode_block), std::nullopt);
        EXPECT_EQ(decode(sample.block, n + 1, lz4_decode_prefix), std::nullopt);
      }
    }
  }
}

TEST(Lz4Block, RefusesDistancesOutsideTheOutput) {
  for (std::size_t match : {4u, 18u, 19u, 300u}) {
    for (std::size_t rest : {5u, 200u}) {
      for (std::size_t distance : {0u, 41u, 65535u}) {
        Bytes bad;
        append_sequence(bad, kit::noise(40), distance, match);
        append_sequence(bad, kit::noise(rest), 0, 0);
        const std::size_t n = 40 + match + rest;
        EXPECT_EQ(decode(bad, n, lz4_decode_block), std::nullopt) << distance << " " << match;
        EXPECT_EQ(decode(bad, n - rest, lz4_decode_prefix), std::nullopt);
        // Not reached.
        EXPECT_NE(decode(bad, 40, lz4_decode_prefix), std::nullopt);
      }
    }
  }
}

bool has_zero_distance(ConstBytes block) {
  const std::byte* in = block.data();
  const auto read = [&](std::size_t n) {
    if (n != 15) return n;
    std::size_t more = 255;
    while (more == 255) n += more = std::to_integer<std::size_t>(*in++);
    return n;
  };
  for (;;) {
    const auto token = std::to_integer<std::size_t>(*in++);
    in += read(token >> 4);
    if (in == block.data() + block.size()) return false;
    if (load_le<std::uint16_t>(in) == 0) return true;
    in += 2;
    read(token & 15);
  }
}

// Where liblz4 accepts bytes that were tampered with, the same comes out here.
TEST(Lz4Block, AgreesWithLiblz4OnFlippedBits) {
  std::mt19937 random(5);
  int accepted = 0;
  int zero = 0;
  for (int round = 0; round < 60; ++round) {
    const Bytes data = kit::repetitive(200 + random() % 20000, random());
    Bytes block(LZ4_COMPRESSBOUND(data.size()));
    block.resize(static_cast<std::size_t>(LZ4_compress_default(as_chars(ConstBytes(data)),
                                                               as_chars(MutableBytes(block)),
                                                               static_cast<int>(data.size()),
                                                               static_cast<int>(block.size()))));
    ASSERT_EQ(decode(block, data.size(), lz4_decode_block), data);
    for (int i = 0; i < 100; ++i) {
      Bytes bad = block;
      std::byte& flipped = bad[random() % bad.size()];
      flipped = i % 2 == 0 ? flipped ^ std::byte(1u << random() % 8) : std::byte{0};
      Bytes theirs(data.size());
      const int n = LZ4_decompress_safe(as_chars(ConstBytes(bad)),
                                        as_chars(MutableBytes(theirs)),
                                        static_cast<int>(bad.size()),
                                        static_cast<int>(theirs.size()));
      const auto ours = decode(bad, data.size(), lz4_decode_block);
      if (n != static_cast<int>(data.size())) continue;
      if (has_zero_distance(bad)) {
        ++zero;
        EXPECT_EQ(ours, std::nullopt);
      } else {
        ++accepted;
        EXPECT_EQ(ours, theirs);
      }
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(zero, 0);
}

ErrorCode code_of(const Codec& codec, ConstBytes encoded, std::size_t nbytes) {
  try {
    kit::decode(codec, encoded, nbytes);
  } catch (const Error& e) {
    return e.code();
  }
  return ErrorCode::io;
}

// The memory that such a match would copy is whatever was decoded there before.
TEST(Lz4, ZeroDistanceIsCorrupt) {
  const Sample sample(40, 0, 100, 20);
  const auto nbytes = static_cast<std::uint32_t>(sample.plain.size());
  Bytes encoded(4);
  store_le(encoded.data(), nbytes);
  encoded.insert(encoded.end(), sample.block.begin(), sample.block.end());
  EXPECT_EQ(code_of(*kit::make({"lz4", ""}), encoded, nbytes), ErrorCode::corrupt);
}

TEST(Blosc, ZeroDistanceInAnLz4StreamIsCorrupt) {
  const Sample sample(40, 0, 100, 20);
  const auto nbytes = static_cast<std::uint32_t>(sample.plain.size());
  Bytes frame(24);
  frame[0] = std::byte{2};              // format
  frame[2] = std::byte{1 << 5 | 0x10};  // lz4, not split
  frame[3] = std::byte{1};              // typesize
  store_le(frame.data() + 4, nbytes);   // decoded
  store_le(frame.data() + 8, nbytes);   // block
  store_le(frame.data() + 12, static_cast<std::uint32_t>(24 + sample.block.size()));
  store_le(frame.data() + 16, std::uint32_t{20});  // where the block begins
  store_le(frame.data() + 20, static_cast<std::uint32_t>(sample.block.size()));
  frame.insert(frame.end(), sample.block.begin(), sample.block.end());
  EXPECT_EQ(code_of(*kit::make({"blosc", ""}, "headrace"), frame, nbytes), ErrorCode::corrupt);
}

}  // namespace
}  // namespace headrace
