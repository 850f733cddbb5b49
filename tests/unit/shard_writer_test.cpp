#include "engine/write/shard_writer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace {
namespace {

// Four inner chunks of four bytes.
ShardLevel make_level(bool index_at_end) {
  ShardLevel level;
  level.shard_shape = {16};
  level.inner_shape = {4};
  level.inner_grid = {4};
  level.inner_count = 4;
  level.index_chain = shard_index_chain({{"bytes", R"({"endian": "little"})"}}, {4}, {});
  level.index_nbytes = shard_index_nbytes(level.index_chain);
  level.index_at_end = index_at_end;
  return level;
}

Buffer buffer(std::string_view text) {
  Buffer bytes;
  bytes.assign(std::as_bytes(std::span(text)));
  return bytes;
}

std::string text(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Each inner chunk's bytes, "-" for a missing one; then all of them as they lie.
std::vector<std::string> parts(const ShardLevel& level, const Buffer& shard) {
  const std::size_t chunks = shard.size() - level.index_nbytes;
  const ConstBytes bytes = shard.bytes();
  const ShardIndex index =
      decode_shard_index(bytes.subspan(level.index_at_end ? chunks : 0, level.index_nbytes),
                         level.index_chain,
                         shard.size());
  std::vector<std::string> found;
  for (std::int64_t i = 0; i < level.inner_count; ++i) {
    if (!index.has(i)) {
      found.push_back("-");
      continue;
    }
    const auto [offset, nbytes] = index.range(i);
    found.push_back(text(bytes.subspan(offset, nbytes)));
  }
  found.push_back(text(bytes.subspan(level.index_at_end ? 0 : level.index_nbytes, chunks)));
  return found;
}

using Parts = std::vector<std::string>;

class ShardWriterTest : public testing::TestWithParam<bool> {
 protected:
  Buffer shard_of_abcd() {
    ShardWriter writer(level_, c_order_, std::nullopt, 0);
    for (std::size_t i = 0; i < 4; ++i) {
      Buffer bytes = buffer(std::string(i + 1, static_cast<char>('a' + i)));
      writer.put(i, static_cast<std::int64_t>(i), bytes);
    }
    Buffer shard;
    EXPECT_TRUE(writer.finish(shard));
    return shard;
  }

  const ShardLevel level_ = make_level(GetParam());
  const InnerOrder c_order_{ShardOrder::lexicographic, level_.inner_grid};
};

TEST_P(ShardWriterTest, LiesInOrderWhoeverIsFirst) {
  const Buffer in_order = shard_of_abcd();
  EXPECT_EQ(parts(level_, in_order), (Parts{"a", "bb", "ccc", "dddd", "abbcccdddd"}));

  ShardWriter writer(level_, c_order_, std::nullopt, 4);
  for (const std::size_t i : {3, 1, 0, 2}) {
    Buffer bytes = buffer(std::string(i + 1, static_cast<char>('a' + i)));
    writer.put(i, static_cast<std::int64_t>(i), bytes);
  }
  Buffer shard;
  ASSERT_TRUE(writer.finish(shard));
  EXPECT_EQ(text(shard), text(in_order));
}

TEST_P(ShardWriterTest, KeepsWhatIsNotTouched) {
  const Buffer before = shard_of_abcd();
  ShardWriter writer(level_, c_order_, before.bytes(), 0);
  EXPECT_EQ(text(*writer.before(3)), "dddd");
  writer.remove(1, 3);
  Buffer bytes = buffer("BBBB");
  writer.put(0, 1, bytes);
  Buffer shard;
  ASSERT_TRUE(writer.finish(shard));
  EXPECT_EQ(parts(level_, shard), (Parts{"a", "BBBB", "ccc", "-", "aBBBBccc"}));
}

TEST_P(ShardWriterTest, KeepsThePlacesOfAnOrder) {
  ShardLevel level = level_;
  level.inner_grid = {2, 2};
  const InnerOrder order(ShardOrder::colexicographic, level.inner_grid);
  const Buffer before = shard_of_abcd();
  ShardWriter writer(level, order, before.bytes(), 0);
  Buffer bytes = buffer("BBBB");
  writer.put(0, 1, bytes);
  Buffer shard;
  ASSERT_TRUE(writer.finish(shard));
  EXPECT_EQ(parts(level_, shard), (Parts{"a", "BBBB", "ccc", "dddd", "acccBBBBdddd"}));
}

TEST_P(ShardWriterTest, NothingIsLeft) {
  const Buffer before = shard_of_abcd();
  ShardWriter writer(level_, c_order_, before.bytes(), 0);
  for (const std::size_t i : {2, 3, 1, 0}) writer.remove(i, static_cast<std::int64_t>(i));
  Buffer shard;
  EXPECT_FALSE(writer.finish(shard));
}

TEST_P(ShardWriterTest, ReservedPlaces) {
  for (const bool removed : {false, true}) {
    ShardWriter writer(level_, c_order_, std::nullopt, 16);
    writer.reserve(4, 4);
    for (const std::size_t i : {2, 0, 3, 1}) {
      const auto inner = static_cast<std::int64_t>(i);
      std::ranges::fill(writer.reserved(i), static_cast<std::byte>('a' + i));
      removed&& i == 1 ? writer.remove_reserved(i, inner) : writer.put_reserved(i, inner);
    }
    Buffer shard;
    ASSERT_TRUE(writer.finish(shard));
    EXPECT_EQ(parts(level_, shard),
              removed ? (Parts{"aaaa", "-", "cccc", "dddd", "aaaaccccdddd"})
                      : (Parts{"aaaa", "bbbb", "cccc", "dddd", "aaaabbbbccccdddd"}));
  }
}

TEST_P(ShardWriterTest, ReservedPlacesAmongOldBytes) {
  const Buffer before = shard_of_abcd();
  ShardWriter writer(level_, c_order_, before.bytes(), 8);
  writer.reserve(2, 4);
  std::ranges::fill(writer.reserved(0), std::byte{'A'});
  writer.put_reserved(0, 0);
  std::ranges::fill(writer.reserved(1), std::byte{'C'});
  writer.put_reserved(1, 2);
  Buffer shard;
  ASSERT_TRUE(writer.finish(shard));
  EXPECT_EQ(parts(level_, shard), (Parts{"AAAA", "bb", "CCCC", "dddd", "AAAAbbCCCCdddd"}));
}

TEST_P(ShardWriterTest, ShardShorterThanItsIndex) {
  const Buffer cut = buffer("short");
  EXPECT_THROW(ShardWriter(level_, c_order_, cut.bytes(), 0), Error);
}

TEST_P(ShardWriterTest, PlainShardFromMemory) {
  const std::string chunks = "aaaabbbbcccc";
  const std::string apart = "dddd";
  PlainShard writer(level_);
  EXPECT_TRUE(writer.empty());
  writer.put(0, std::as_bytes(std::span(chunks)).first(4));
  writer.put(1, std::as_bytes(std::span(chunks)).subspan(4, 4));
  writer.put(3, std::as_bytes(std::span(apart)));
  ASSERT_FALSE(writer.empty());
  Buffer shard;
  for (ConstBytes part : writer.finish()) shard.append(part);
  EXPECT_EQ(parts(level_, shard), (Parts{"aaaa", "bbbb", "-", "dddd", "aaaabbbbdddd"}));
}

INSTANTIATE_TEST_SUITE_P(Index, ShardWriterTest, testing::Bool(), [](const auto& index) {
  return std::string(index.param ? "AtEnd" : "AtStart");
});

}  // namespace
}  // namespace headrace
