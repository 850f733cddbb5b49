#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "headrace/error.h"
#include "store/coalesce.h"

namespace headrace {
namespace {

using Members = std::vector<std::size_t>;

TEST(Coalesce, JoinsNeighboursAcrossTheGap) {
  const ByteRange ranges[] = {{0, 10}, {15, 5}, {31, 4}, {35, 1}};
  auto groups = coalesce(ranges, {10, 1000});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].range, (ByteRange{0, 20}));
  EXPECT_EQ(groups[0].members, (Members{0, 1}));
  EXPECT_EQ(groups[1].range, (ByteRange{31, 5}));
  EXPECT_EQ(groups[1].members, (Members{2, 3}));
}

TEST(Coalesce, GapIsInclusive) {
  const ByteRange ranges[] = {{0, 10}, {20, 10}};
  EXPECT_EQ(coalesce(ranges, {10, 1000}).size(), 1u);
  EXPECT_EQ(coalesce(ranges, {9, 1000}).size(), 2u);
}

TEST(Coalesce, RunLimitsAGroupButNotARange) {
  const ByteRange ranges[] = {{0, 100}, {100, 10}, {110, 10}, {120, 11}};
  auto groups = coalesce(ranges, {0, 30});
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].range, (ByteRange{0, 100}));
  EXPECT_EQ(groups[1].range, (ByteRange{100, 20}));
  EXPECT_EQ(groups[2].range, (ByteRange{120, 11}));
}

TEST(Coalesce, CoveredRangesAlwaysJoin) {
  const ByteRange ranges[] = {{0, 100}, {5, 10}, {0, 100}, {100, 0}};
  auto groups = coalesce(ranges, {0, 10});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].members, (Members{0, 2, 1, 3}));
}

TEST(Coalesce, NothingGivesNothing) { EXPECT_TRUE(coalesce({}, {1, 1}).empty()); }

TEST(Coalesce, RangePastTheEndOfTheWorldIsRefused) {
  const ByteRange ranges[] = {{0, 1}, {UINT64_MAX - 3, 8}};
  try {
    coalesce(ranges, {1, 1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
  const ByteRange last[] = {{UINT64_MAX - 3, 3}, {0, 4}};
  EXPECT_EQ(coalesce(last, {UINT64_MAX, UINT64_MAX}).size(), 1u);
  EXPECT_EQ(coalesce(last, {100, UINT64_MAX}).size(), 2u);
}

TEST(Coalesce, EveryRangeLiesInOneGroupAndNoGroupIsWasteful) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<ByteRange> ranges(random() % 40);
    for (ByteRange& range : ranges) range = {random() % 1000, random() % 60};
    const std::uint64_t gap = random() % 30;
    const std::uint64_t run = random() % 300;
    auto groups = coalesce(ranges, {gap, run});
    std::vector<int> seen(ranges.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const RangeGroup& group = groups[g];
      ASSERT_FALSE(group.members.empty());
      std::uint64_t low = UINT64_MAX;
      std::uint64_t high = 0;
      std::uint64_t longest = 0;
      for (std::size_t i : group.members) {
        ++seen[i];
        ASSERT_TRUE(high == 0 || ranges[i].offset <= high + gap);
        low = std::min(low, ranges[i].offset);
        high = std::max(high, ranges[i].offset + ranges[i].nbytes);
        longest = std::max(longest, ranges[i].nbytes);
      }
      ASSERT_EQ(group.range, (ByteRange{low, high - low}));
      ASSERT_LE(group.range.nbytes, std::max(run, longest));
      if (g == 0) continue;
      // Two groups are apart for a reason.
      const ByteRange& before = groups[g - 1].range;
      const ByteRange& first = ranges[group.members.front()];
      ASSERT_GE(first.offset, before.offset);
      const std::uint64_t before_end = before.offset + before.nbytes;
      ASSERT_TRUE(first.offset > before_end + gap ||
                  first.offset + first.nbytes - before.offset > run);
    }
    ASSERT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
  }
}

}  // namespace
}  // namespace headrace
