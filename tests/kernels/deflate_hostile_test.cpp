// Streams that are wrong, or strange: zlib's verdict is the measure.

#include "kernels/deflate_kit.h"

namespace headrace::test {
namespace {

class HostileDeflate : public DeflatePlaces {};
INSTANTIATE_TEST_SUITE_P(Places,
                         HostileDeflate,
                         testing::Range(std::size_t{0}, places().size()),
                         [](const auto& test) { return places()[test.param].name; });

TEST_P(HostileDeflate, ChecksEveryMember) {
  const Bytes parts[] = {sentences(1000), field(20'000), noise(300)};
  std::vector<Bytes> encoded, members;
  std::vector<std::size_t> nbytes;
  for (const Bytes& part : parts) members.push_back(compress(part, {.window_bits = 31}));
  for (std::size_t m = 0; m < 3; ++m) {
    for (std::size_t byte = 1; byte <= 8; ++byte) {
      std::vector<Bytes> wrong = members;
      wrong[m][wrong[m].size() - byte] ^= 0x10;
      encoded.push_back(joined(wrong));
      nbytes.push_back(21'300);
    }
  }
  const Decoded got = decode(place(), place().kernels->gzip, encoded, nbytes);
  for (std::size_t i = 0; i < encoded.size(); ++i)
    EXPECT_EQ(got.faults[i], i % 8 < 4 ? Fault::wrong_size : Fault::checksum) << i;
}

TEST_P(HostileDeflate, RefusesWhatFollowsTheEnd) {
  const Bytes original = sentences(1000);
  const Bytes garbage = {1, 2, 3}, zero = {0};
  const Bytes raw = compress(original, {.window_bits = -15}), zlib = compress(original, {}),
              gzip = compress(original, {.window_bits = 31});
  const auto fault = [&](Decode decoder, const Bytes& encoded) {
    return decode(place(), decoder, {encoded}, {original.size()}).faults[0];
  };
  const Kernels& kernels = *place().kernels;
  EXPECT_EQ(fault(kernels.deflate, joined({raw, garbage})), Fault::malformed);
  EXPECT_EQ(fault(kernels.zlib, joined({zlib, garbage})), Fault::malformed);
  EXPECT_EQ(fault(kernels.zlib, joined({zlib, zero})), Fault::malformed);
  EXPECT_EQ(fault(kernels.gzip, joined({gzip, garbage})), Fault::malformed);
  EXPECT_EQ(fault(kernels.gzip, joined({gzip, zero})), Fault::none);
  EXPECT_EQ(fault(kernels.gzip, joined({gzip, zero, garbage})), Fault::malformed);
}

TEST_P(HostileDeflate, RefusesAPresetDictionary) {
  Bytes original = sentences(1000);
  z_stream stream{};
  ASSERT_EQ(deflateInit(&stream, 6), Z_OK);
  ASSERT_EQ(deflateSetDictionary(&stream, original.data(), 500), Z_OK);
  Bytes encoded(2000);
  stream.next_in = original.data();
  stream.avail_in = 1000;
  stream.next_out = encoded.data();
  stream.avail_out = 2000;
  ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  encoded.resize(stream.total_out);
  deflateEnd(&stream);
  EXPECT_EQ(decode(place(), place().kernels->zlib, {encoded}, {1000}).faults[0],
            Fault::unsupported);
}

TEST_P(HostileDeflate, RefusesTheWrongSize) {
  for (const auto& kind : kKinds) {
    const Bytes encoded = compress(kind(70'000), {});
    const Decoded got = decode(place(),
                               place().kernels->zlib,
                               {encoded, encoded, encoded, encoded},
                               {69'999, 70'001, 0, 1});
    for (Fault fault : got.faults) EXPECT_EQ(fault, Fault::wrong_size);
  }
}

std::vector<Bytes> with_each_byte_changed(const Bytes& good, std::uint8_t change) {
  std::vector<Bytes> all(good.size(), good);
  for (std::size_t i = 0; i < all.size(); ++i) all[i][i] ^= change;
  return all;
}

TEST_P(HostileDeflate, SharesZlibsVerdictOnChangedBytes) {
  const struct {
    Form form;
    Bytes original;
    int level, strategy;
  } streams[] = {
      {Form::zlib, sentences(900), 6, Z_DEFAULT_STRATEGY},
      {Form::gzip, sentences(300), 6, Z_FIXED},
      {Form::raw, sentences(700), 6, Z_DEFAULT_STRATEGY},
      {Form::raw, skewed(500), 6, Z_HUFFMAN_ONLY},
      {Form::raw, constant(100'000), 6, Z_DEFAULT_STRATEGY},
      {Form::raw, sentences(300), 6, Z_FIXED},
      {Form::raw, sentences(90), 0, Z_DEFAULT_STRATEGY},
  };
  for (const auto& [form, original, level, strategy] : streams) {
    const Bytes good = compress(
        original, {.level = level, .strategy = strategy, .window_bits = window_bits(form)});
    for (std::uint8_t change : {0x01, 0x08, 0x80, 0xff})
      expect_zlibs_verdict(place(), form, with_each_byte_changed(good, change), original.size());
  }
}

TEST_P(HostileDeflate, RefusesEveryTruncation) {
  for (Form form : {Form::raw, Form::zlib, Form::gzip}) {
    for (int level : {0, 6}) {
      const Bytes original = sentences(600);
      const Bytes good = compress(original, {.level = level, .window_bits = window_bits(form)});
      std::vector<Bytes> cut;
      for (std::size_t n = 0; n < good.size(); ++n)
        cut.emplace_back(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n));
      expect_zlibs_verdict(place(), form, cut, original.size());
    }
  }
}

TEST_P(HostileDeflate, ABadChunkLeavesTheOthersAlone) {
  std::vector<Bytes> encoded, originals;
  std::vector<std::size_t> nbytes;
  for (std::size_t i = 0; i < 30; ++i) {
    originals.push_back(kKinds[i % kKinds.size()](20'000 + i));
    encoded.push_back(compress(originals.back(), {}));
    nbytes.push_back(originals.back().size());
  }
  encoded[7].resize(encoded[7].size() / 2);
  encoded[11][encoded[11].size() / 2] ^= 0x55;
  encoded[13].back() ^= 1;
  encoded[20].clear();
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Decoded got = decode(place(), place().kernels->zlib, encoded, nbytes, seed);
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      const bool bad = i == 7 || i == 11 || i == 13 || i == 20;
      EXPECT_EQ(got.faults[i] != Fault::none, bad) << i;
      EXPECT_TRUE(bad || got.chunks[i] == originals[i]) << i;
    }
    EXPECT_EQ(got.faults[13], Fault::checksum);
  }
}

// Writes bits as RFC 1951 packs them.
class BitWriter {
 public:
  void bits(std::uint32_t value, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      if (used_ % 8 == 0) bytes_.push_back(0);
      bytes_.back() |= static_cast<std::uint8_t>((value >> i & 1) << used_++ % 8);
    }
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
  std::size_t used_ = 0;
};

// A last block whose code lengths are given one by one; what follows is `symbols`, bits as they
// come. The code lengths 0, 1, 2 and 15 have codes of 2 bits.
Bytes block_with_lengths(const std::vector<unsigned>& literals,
                         const std::vector<unsigned>& distances,
                         const std::vector<unsigned>& symbols) {
  BitWriter writer;
  writer.bits(1, 1);
  writer.bits(2, 2);
  writer.bits(static_cast<unsigned>(literals.size()) - 257, 5);
  writer.bits(static_cast<unsigned>(distances.size()) - 1, 5);
  writer.bits(19 - 4, 4);
  for (unsigned symbol : {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15})
    writer.bits(symbol <= 2 || symbol == 15 ? 2 : 0, 3);
  const auto length = [&](unsigned bits) {
    const unsigned code = bits == 15 ? 3 : bits;
    writer.bits(code >> 1 | (code & 1) << 1, 2);
  };
  for (unsigned bits : literals) length(bits);
  for (unsigned bits : distances) length(bits);
  for (unsigned bit : symbols) writer.bits(bit, 1);
  return writer.bytes();
}

// Literal 'a' 1 bit, end of block and length 3 of 2 bits.
std::vector<unsigned> a_end_three() {
  std::vector<unsigned> lengths(258);
  lengths['a'] = 1;
  lengths[256] = lengths[257] = 2;
  return lengths;
}

TEST_P(HostileDeflate, SharesZlibsVerdictOnIncompleteCodes) {
  const auto check = [&](const Bytes& encoded, std::size_t nbytes) {
    expect_zlibs_verdict(place(), Form::raw, {encoded}, nbytes);
    return inflate_all(encoded, nbytes, -15).good;
  };
  const std::vector<unsigned> literals = a_end_three();
  // a, then end; no distance codes.
  EXPECT_TRUE(check(block_with_lengths(literals, {0}, {0, 1, 0}), 1));
  // a, a match of 3 without a distance code.
  EXPECT_FALSE(check(block_with_lengths(literals, {0}, {0, 1, 1, 0, 1, 0}), 4));
  // The single distance code, and the bit that is no code.
  EXPECT_TRUE(check(block_with_lengths(literals, {1}, {0, 1, 1, 0, 1, 0}), 4));
  EXPECT_FALSE(check(block_with_lengths(literals, {1}, {0, 1, 1, 1, 1, 0}), 4));
  // A single distance code of 2 bits is refused, and so are three of 2 bits, three of 1.
  EXPECT_FALSE(check(block_with_lengths(literals, {2}, {0, 1, 1, 0, 0, 1, 0}), 4));
  EXPECT_FALSE(check(block_with_lengths(literals, {2, 2, 2}, {0, 1, 1, 0, 0, 1, 0}), 4));
  EXPECT_FALSE(check(block_with_lengths(literals, {1, 1, 1}, {0, 1, 1, 0, 1, 0}), 4));
  // A match before the first byte.
  EXPECT_FALSE(check(block_with_lengths(literals, {1}, {1, 1, 0, 1, 0}), 3));
  // End of block alone: the only literal code may have a single bit.
  std::vector<unsigned> only_end(257);
  only_end[256] = 1;
  EXPECT_TRUE(check(block_with_lengths(only_end, {0}, {0}), 0));
  EXPECT_FALSE(check(block_with_lengths(only_end, {0}, {1}), 0));
  only_end[256] = 2;
  EXPECT_FALSE(check(block_with_lengths(only_end, {0}, {0, 0}), 0));
  // No end of block.
  std::vector<unsigned> no_end(257);
  no_end['a'] = no_end['b'] = 1;
  EXPECT_FALSE(check(block_with_lengths(no_end, {0}, {0}), 1));
  // Too many symbols: 287 literal codes, 31 distances.
  std::vector<unsigned> many = literals;
  many.resize(287);
  EXPECT_FALSE(check(block_with_lengths(many, {0}, {0, 1, 0}), 1));
  EXPECT_FALSE(check(block_with_lengths(literals, std::vector<unsigned>(31), {0, 1, 0}), 1));
}

// Matches of 1 + 1 bits: a lane that begins between their two codes never falls in with the rest.
TEST_P(HostileDeflate, DecodesCodesThatNeverFallIn) {
  std::vector<unsigned> lengths(286);
  lengths[285] = 1;
  lengths['a'] = lengths[256] = 2;
  for (std::size_t matches : {1u, 1000u, 9000u}) {
    std::vector<unsigned> symbols = {1, 0};
    symbols.resize(2 + 2 * matches);
    symbols.insert(symbols.end(), {1, 1});
    expect_decodes(place(),
                   place().kernels->deflate,
                   {block_with_lengths(lengths, {1}, symbols)},
                   {Bytes(1 + 258 * matches, 'a')});
  }
}

}  // namespace
}  // namespace headrace::test
