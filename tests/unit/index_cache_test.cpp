#include "engine/request/index_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace headrace {
namespace {

std::shared_ptr<const ShardIndex> index_of(std::size_t nbytes) {
  auto index = std::make_shared<ShardIndex>();
  index->entries.resize(nbytes / sizeof(index->entries[0]));
  return index;
}

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(IndexCache, GivesOnlyTheVersionThatWasRead) {
  IndexCache cache;
  const auto index = index_of(64);
  EXPECT_EQ(cache.find("a", 1), nullptr);
  cache.put("a", 1, index);
  EXPECT_EQ(cache.find("a", 1), index);
  EXPECT_EQ(cache.find("a", 2), nullptr);
  EXPECT_EQ(cache.find("b", 1), nullptr);
  const auto newer = index_of(64);
  cache.put("a", 2, newer);
  EXPECT_EQ(cache.find("a", 2), newer);
  EXPECT_EQ(cache.find("a", 1), nullptr);
}

TEST(IndexCache, DropsTheLeastRecentlyUsedPastItsBound) {
  IndexCache cache;
  for (int i = 0; i < 4; ++i) cache.put(std::to_string(i), 1, index_of(8 * kMiB));
  EXPECT_NE(cache.find("0", 1), nullptr);  // all four fit, and "1" is now the oldest
  cache.put("4", 1, index_of(8 * kMiB));
  EXPECT_EQ(cache.find("1", 1), nullptr);
  for (const auto* place : {"0", "2", "3", "4"}) EXPECT_NE(cache.find(place, 1), nullptr) << place;
}

TEST(IndexCache, FreesWhatItDrops) {
  IndexCache cache;
  auto index = index_of(kMiB);
  const std::weak_ptr<const ShardIndex> watch = index;
  cache.put("a", 1, std::move(index));
  EXPECT_FALSE(watch.expired());
  cache.put("a", 2, index_of(kMiB));
  EXPECT_TRUE(watch.expired());
}

TEST(IndexCache, KeepsNothingLargerThanItsBound) {
  IndexCache cache;
  cache.put("small", 1, index_of(kMiB));
  cache.put("large", 1, index_of(33 * kMiB));
  EXPECT_EQ(cache.find("large", 1), nullptr);
  EXPECT_NE(cache.find("small", 1), nullptr);
  cache.put("small", 2, index_of(33 * kMiB));  // what it replaces is stale all the same
  EXPECT_EQ(cache.find("small", 1), nullptr);
}

TEST(IndexCache, CountsWhatItReplacesOnce) {
  IndexCache cache;
  cache.put("kept", 1, index_of(kMiB));
  for (std::uint64_t version = 0; version < 100; ++version)
    cache.put("a", version, index_of(16 * kMiB));
  EXPECT_NE(cache.find("kept", 1), nullptr);
}

}  // namespace
}  // namespace headrace
