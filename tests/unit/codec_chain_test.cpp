#include <gtest/gtest.h>

#include "codec/chain.h"
#include "codec/shard_index.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {
namespace {

using kit::Bytes;

CodecChain make_chain(const std::vector<CodecSpec>& specs, const DType& dtype, const Shape& shape) {
  return CodecChain(specs, {dtype, shape, {}}, {});
}

Bytes encode(const CodecChain& chain, ConstBytes data) {
  Buffer encoded;
  chain.encode(data, encoded);
  return {encoded.data(), encoded.data() + encoded.size()};
}

void check_chain(const CodecChain& chain, const Bytes& data) {
  const Bytes encoded = encode(chain, data);
  if (chain.fixed_encoded_nbytes()) {
    EXPECT_EQ(*chain.fixed_encoded_nbytes(), encoded.size());
  }
  Bytes out(data.size(), std::byte{0xA5});
  chain.decode(encoded, out, {});
  EXPECT_EQ(out, data);
  if (!chain.has_pieces()) return;
  for (unsigned seed = 0; seed < 20; ++seed) {
    kit::CheckingSink sink(data, seed);
    chain.decode_pieces(encoded, sink, {});
    sink.check();
  }
}

TEST(CodecChain, CombinationsRoundTrip) {
  const CodecSpec big = codec::bytes("big");
  const CodecSpec little = codec::bytes();
  const CodecSpec shuffle{"numcodecs.shuffle", R"({"elementsize": 4})"};
  const CodecSpec adler{"numcodecs.adler32", ""};
  const CodecSpec f = codec::transpose({2, 0, 1});
  const Bytes data = kit::smooth_floats(20 * 30 * 40 * 4);
  const std::vector<std::vector<CodecSpec>> chains = {
      {little},
      {big},
      {f, little},
      {f, big},
      {f, codec::transpose({1, 2, 0}), little},
      {little, codec::zstd()},
      {big, codec::zstd()},
      {f, big, codec::zstd()},
      {little, codec::crc32c()},
      {little, codec::zstd(), codec::crc32c()},
      {little, codec::crc32c(), codec::zstd()},
      {little, shuffle, codec::zlib()},
      {big, shuffle, adler, codec::gzip(), codec::crc32c(), codec::lz4()},
      {little, codec::zstd(), codec::gzip(), codec::blosc()},
      {f, big, codec::blosc("zstd", 3, "bitshuffle", 4)},
      {codec::sharding({10, 15, 20}, {little, codec::zstd()})},
      {f, codec::sharding({20, 10, 15}, {big}, {little, codec::crc32c()}, "start"), codec::gzip()},
      {codec::sharding({10, 30, 40},
                       {codec::sharding({5, 5, 5}, {little, codec::lz4()}), codec::crc32c()})},
  };
  for (const auto& specs : chains) {
    std::string names;
    for (const CodecSpec& s : specs) names += s.name + " ";
    SCOPED_TRACE(names);
    check_chain(make_chain(specs, DType::float32, {20, 30, 40}), data);
  }
}

// Blocks that end within elements, and codecs whose pieces end anywhere.
TEST(CodecChain, SwapsPieces) {
  const CodecSpec other =
      codec::bytes(std::endian::native == std::endian::little ? "big" : "little");
  const CodecSpec odd_blocks{"blosc", R"({"typesize": 1, "blocksize": 1021, "shuffle": 0})"};
  const CodecSpec odd_shuffled{"blosc", R"({"typesize": 3, "blocksize": 1023, "shuffle": 1})"};
  for (const DType& dtype : {DType::int16, DType::float32, DType::float64, DType::complex64}) {
    const Bytes data = kit::smooth_floats(7 * 1000 * dtype.itemsize());
    for (const auto& specs : std::vector<std::vector<CodecSpec>>{{other},
                                                                 {other, odd_blocks},
                                                                 {other, odd_shuffled},
                                                                 {other, codec::zstd()},
                                                                 {other, codec::gzip()},
                                                                 {other, codec::lz4()},
                                                                 {other, codec::crc32c()}}) {
      SCOPED_TRACE(dtype.to_string() + " " + specs.back().name);
      const CodecChain chain = make_chain(specs, dtype, {7, 1000});
      ASSERT_TRUE(chain.has_pieces());
      check_chain(chain, data);
    }
  }
}

// A point of a large chunk costs the block that holds it, swapped or not.
TEST(CodecChain, SwapsOnlyWhatIsWanted) {
  struct CountingSink final : PieceSink {
    std::size_t given = 0;
    std::size_t begin() const override { return 40000; }
    std::size_t end() const override { return 40004; }
    bool wants(std::size_t offset, std::size_t n) const override {
      return offset < 40004 && offset + n > 40000;
    }
    void put(std::size_t, ConstBytes piece) override { given += piece.size(); }
    std::byte* direct(std::size_t, std::size_t) override { return nullptr; }
  } sink;
  const CodecChain chain = make_chain(
      {codec::bytes("big"), codec::blosc("lz4", 5, "shuffle", 4, 4096)}, DType::float32, {250000});
  chain.decode_pieces(encode(chain, kit::smooth_floats(1000000)), sink, {});
  EXPECT_GE(sink.given, 4u);
  EXPECT_LE(sink.given, 16384u);
}

TEST(CodecChain, KnowsIdentityAndPieces) {
  const Shape shape{4, 8};
  const auto chain = [&](const std::vector<CodecSpec>& specs) {
    return make_chain(specs, DType::float32, shape);
  };
  const bool little = std::endian::native == std::endian::little;
  const CodecSpec native = codec::bytes(little ? "little" : "big");
  const CodecSpec other = codec::bytes(little ? "big" : "little");
  EXPECT_TRUE(chain({native}).is_identity());
  EXPECT_TRUE(chain({codec::transpose({0, 1}), native}).is_identity());
  EXPECT_FALSE(chain({codec::transpose({1, 0}), native}).is_identity());
  EXPECT_FALSE(chain({other}).is_identity());
  EXPECT_FALSE(chain({native, codec::crc32c()}).is_identity());
  EXPECT_EQ(chain({native, codec::crc32c()}).fixed_encoded_nbytes(), 132u);
  EXPECT_EQ(chain({native, codec::zstd()}).fixed_encoded_nbytes(), std::nullopt);
  EXPECT_TRUE(chain({native, codec::zstd()}).has_pieces());
  EXPECT_TRUE(chain({native, codec::zstd(), codec::crc32c()}).has_pieces());
  EXPECT_TRUE(chain({native, codec::crc32c()}).has_pieces());
  EXPECT_TRUE(chain({other, codec::zstd()}).has_pieces());
  EXPECT_TRUE(chain({other}).has_pieces());
  EXPECT_FALSE(chain({other, codec::zstd(), codec::zstd()}).has_pieces());
  EXPECT_FALSE(chain({codec::transpose({1, 0}), other, codec::zstd()}).has_pieces());
  EXPECT_FALSE(chain({native, codec::crc32c(), codec::zstd()}).has_pieces());
}

TEST(CodecChain, RefusesWrongOrders) {
  const auto build = [](const std::vector<CodecSpec>& specs) {
    return make_chain(specs, DType::float32, {4, 8});
  };
  EXPECT_THROW(build({}), Error);
  EXPECT_THROW(build({codec::transpose({1, 0})}), Error);
  EXPECT_THROW(build({codec::zstd()}), Error);
  EXPECT_THROW(build({codec::bytes(), codec::bytes()}), Error);
  EXPECT_THROW(build({codec::bytes(), codec::transpose({1, 0})}), Error);
  EXPECT_THROW(build({codec::bytes(), codec::sharding({4, 4}, {codec::bytes()})}), Error);
  EXPECT_THROW(build({codec::sharding({4, 3}, {codec::bytes()})}), Error);
  EXPECT_THROW(build({codec::sharding({4, 4}, {codec::bytes()}, {codec::bytes(), codec::zstd()})}),
               Error);
}

TEST(CodecChain, ErrorsNameTheCodecAndSizes) {
  const CodecChain chain = make_chain({codec::bytes(), codec::zstd()}, DType::float32, {16});
  const CodecChain shorter = make_chain({codec::bytes(), codec::zstd()}, DType::float32, {15});
  const Bytes encoded = encode(shorter, kit::noise(60));
  Bytes out(64);
  try {
    chain.decode(encoded, out, {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "codec zstd: expected 64 bytes, got 60");
    EXPECT_EQ(e.code(), ErrorCode::corrupt);
  }
  const CodecChain plain = make_chain({codec::bytes()}, DType::float32, {16});
  try {
    plain.decode(encoded, out, {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).substr(0, 34), "codec bytes: expected 64 bytes, go");
  }
}

TEST(CodecChain, HostileBytesThroughLongChains) {
  const CodecChain chain =
      make_chain({codec::transpose({1, 0}), codec::bytes("big"), codec::gzip(), codec::zstd()},
                 DType::int16,
                 {16, 20});
  const Bytes encoded = encode(chain, kit::repetitive(640));
  std::mt19937 random(1);
  Bytes out(640);
  for (int i = 0; i < 2000; ++i) {
    Bytes bad = encoded;
    bad[random() % bad.size()] = std::byte(random());
    bad.resize(bad.size() - random() % 3);
    try {
      chain.decode(bad, out, {});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::corrupt) << e.what();
    }
  }
}

class ShardIndexTest : public ::testing::Test {
 protected:
  CodecChain chain_ = shard_index_chain({codec::bytes(), codec::crc32c()}, {2, 2}, {});
  Bytes encode_index(const ShardIndex& index) {
    Buffer encoded;
    encode_shard_index(index, chain_, encoded);
    return {encoded.data(), encoded.data() + encoded.size()};
  }
};

TEST_F(ShardIndexTest, RoundTripsWithEmptyEntries) {
  ShardIndex index = ShardIndex::empty(4);
  index.set(1, 0, 100);
  index.set(3, 100, 28);
  const Bytes encoded = encode_index(index);
  ASSERT_EQ(encoded.size(), shard_index_nbytes(chain_));
  ASSERT_EQ(encoded.size(), 4u * 16 + 4);
  const ShardIndex back = decode_shard_index(encoded, chain_, 128);
  EXPECT_EQ(back.entries, index.entries);
  EXPECT_FALSE(back.has(0));
  EXPECT_TRUE(back.has(3));
}

TEST_F(ShardIndexTest, RefusesTheRangeOfAnEntryThatLies) {
  const std::uint64_t bad[][2] = {{100, 29},
                                  {129, 0},
                                  {100, 0},
                                  {ShardIndex::kEmpty, 1},
                                  {0, ShardIndex::kEmpty},
                                  {ShardIndex::kEmpty - 10, 11},
                                  {128, ShardIndex::kEmpty - 100}};
  for (const auto& [offset, nbytes] : bad) {
    ShardIndex index = ShardIndex::empty(4);
    index.set(1, 100, 28);
    index.set(2, offset, nbytes);
    const ShardIndex back = decode_shard_index(encode_index(index), chain_, 128);
    EXPECT_TRUE(back.has(2));
    EXPECT_THROW(back.range(2), Error) << offset << " " << nbytes;
    EXPECT_EQ(back.range(1).offset, 100u);
    EXPECT_EQ(back.range(1).nbytes, 28u);
  }
}

TEST_F(ShardIndexTest, RejectsAWrongChecksumAndSize) {
  Bytes encoded = encode_index(ShardIndex::empty(4));
  EXPECT_THROW(decode_shard_index(ConstBytes(encoded).first(67), chain_, 128), Error);
  encoded[3] ^= std::byte{1};
  EXPECT_THROW(decode_shard_index(encoded, chain_, 128), Error);
}

TEST(Sharding, FillsWhatIsMissing) {
  const auto fill = std::make_shared<std::vector<std::byte>>(Bytes{std::byte{1}, std::byte{2}});
  const CodecChain chain(
      {codec::sharding({2, 2}, {codec::bytes(), codec::zstd()})}, {DType::int16, {4, 4}, fill}, {});
  Bytes data(32);
  for (std::size_t i = 0; i < 32; ++i) data[i] = std::byte(1 + i % 2);
  const Bytes empty = encode(chain, data);
  EXPECT_EQ(empty.size(), 4u * 16 + 4);  // an index and nothing else
  Bytes out(32);
  chain.decode(empty, out, {});
  EXPECT_EQ(out, data);
  data[0] = std::byte{9};
  EXPECT_GT(encode(chain, data).size(), empty.size());
  chain.decode(encode(chain, data), out, {2});
  EXPECT_EQ(out, data);
}

TEST(Sharding, Hostile) {
  const CodecChain chain(
      {codec::sharding({2, 4}, {codec::bytes(), codec::zstd()}, {codec::bytes()})},
      {DType::int16, {4, 8}, {}},
      {});
  const Bytes encoded = encode(chain, kit::noise(64));
  Bytes out(64);
  std::mt19937 random(2);
  for (std::size_t n = 0; n < encoded.size(); ++n) {
    const Bytes cut(encoded.begin(), encoded.begin() + static_cast<long>(n));
    EXPECT_THROW(chain.decode(cut, out, {}), Error) << n;
  }
  for (int i = 0; i < 3000; ++i) {
    Bytes bad = encoded;
    bad[random() % bad.size()] = std::byte(random());
    try {
      chain.decode(bad, out, {});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::corrupt) << e.what();
    }
  }
}

}  // namespace
}  // namespace headrace
