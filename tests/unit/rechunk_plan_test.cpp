#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "engine/rechunk/plan.h"
#include "headrace/error.h"

namespace headrace::test {
namespace {

Shape regular(std::int64_t extent, std::int64_t chunk) {
  Shape sizes;
  for (std::int64_t at = 0; at < extent; at += chunk) sizes.push_back(std::min(chunk, extent - at));
  return sizes;
}

Shape irregular(std::int64_t extent, std::mt19937& random) {
  Shape sizes;
  while (extent > 0) {
    sizes.push_back(std::uniform_int_distribution<std::int64_t>(1, extent)(random));
    extent -= sizes.back();
  }
  return sizes;
}

std::int64_t largest(const Shape& sizes) { return sizes.empty() ? 1 : std::ranges::max(sizes); }

std::size_t largest_nbytes(const ChunkSizes& grid, std::size_t itemsize) {
  for (const Shape& sizes : grid) itemsize *= static_cast<std::size_t>(largest(sizes));
  return itemsize;
}

// [start, stop) of each.
std::vector<std::pair<std::int64_t, std::int64_t>> ranges(const Shape& sizes) {
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  std::int64_t at = 0;
  for (const std::int64_t extent : sizes) {
    result.emplace_back(at, at + extent);
    at += extent;
  }
  return result;
}

bool ends_within(const Shape& coarse, const Shape& fine) {
  const auto inner = ranges(fine);
  return std::ranges::all_of(ranges(coarse), [&](const auto& block) {
    return std::ranges::any_of(inner, [&](const auto& r) { return r.second == block.second; });
  });
}

// Chunks and their elements that the blocks touch, one pair after another.
struct Counted {
  std::int64_t chunks = 0;
  std::int64_t elements = 0;
};

Counted count_touched(const ChunkSizes& blocks, const ChunkSizes& chunks) {
  Counted counted{1, 1};
  for (std::size_t d = 0; d < blocks.size(); ++d) {
    Counted along;
    for (const auto& block : ranges(blocks[d])) {
      for (const auto& chunk : ranges(chunks[d])) {
        if (chunk.first >= block.second || chunk.second <= block.first) continue;
        ++along.chunks;
        along.elements += chunk.second - chunk.first;
      }
    }
    counted.chunks *= along.chunks;
    counted.elements *= along.elements;
  }
  return counted;
}

void check_pass(const RechunkPass& pass,
                const ChunkSizes& source,
                const ChunkSizes& units,
                std::size_t itemsize,
                std::size_t limit) {
  std::int64_t n = 1;
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < source.size(); ++d) {
    const Shape& blocks = pass.block_sizes[d];
    // Each element once, and each unit within one block.
    EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}),
              std::accumulate(source[d].begin(), source[d].end(), std::int64_t{0}));
    EXPECT_TRUE(std::ranges::all_of(blocks, [](std::int64_t extent) { return extent > 0; }));
    EXPECT_TRUE(ends_within(blocks, units[d]));
    n *= static_cast<std::int64_t>(blocks.size());
    elements *= std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  }
  EXPECT_EQ(pass.nblocks, n);
  EXPECT_EQ(pass.nbytes_written, elements * static_cast<std::int64_t>(itemsize));
  EXPECT_LE(largest_nbytes(pass.block_sizes, itemsize), limit);
  const Counted counted = count_touched(pass.block_sizes, source);
  EXPECT_EQ(pass.chunks_read, counted.chunks);
  EXPECT_EQ(pass.nbytes_read, counted.elements * static_cast<std::int64_t>(itemsize));
}

TEST(RechunkPlan, CoversEachElementOnceWithinMemory) {
  std::mt19937 random(7);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  int two_passes = 0;
  for (int round = 0; round < 500; ++round) {
    const auto ndim = static_cast<std::size_t>(draw(0, 4));
    const auto itemsize = static_cast<std::size_t>(draw(1, 8));
    ChunkSizes source;
    ChunkSizes destination;
    for (std::size_t d = 0; d < ndim; ++d) {
      const std::int64_t extent = draw(1, 40);
      const bool edged = draw(0, 3) == 0;
      source.push_back(edged ? irregular(extent, random) : regular(extent, draw(1, extent)));
      destination.push_back(regular(extent, draw(1, extent)));
    }
    const std::size_t least =
        std::max(largest_nbytes(source, itemsize), largest_nbytes(destination, itemsize));
    const std::size_t limit = least * static_cast<std::size_t>(draw(1, 8));
    const auto passes = plan_passes(source, destination, itemsize, limit);
    if (passes.size() == 1) {
      check_pass(passes[0], source, destination, itemsize, limit);
      continue;
    }
    ASSERT_EQ(passes.size(), 2U);
    ++two_passes;
    const ChunkSizes between = common_chunks(passes[0].block_sizes, passes[1].block_sizes);
    check_pass(passes[0], source, between, itemsize, limit);
    check_pass(passes[1], between, destination, itemsize, limit);
    EXPECT_EQ(passes[0].nbytes_read, passes[0].nbytes_written);
    EXPECT_EQ(passes[1].nbytes_read, passes[1].nbytes_written);
    const RechunkPass one = plan_pass(source, destination, itemsize, limit);
    EXPECT_GT(one.nbytes_read, 3 * one.nbytes_written);
  }
  EXPECT_GT(two_passes, 10);
}

// Against every number of units a block may have.
TEST(RechunkPlan, OnePassReadsNoMoreThanTheBestByHand) {
  const ChunkSizes source = {regular(60, 6), regular(64, 16)};
  const ChunkSizes destination = {regular(60, 10), regular(64, 4)};
  for (const std::size_t limit : {40, 160, 480, 600, 1200, 1920, 3840}) {
    const RechunkPass pass = plan_pass(source, destination, 1, limit);
    std::int64_t best = pass.nbytes_read;
    for (std::int64_t a = 10; a <= 60; a += 10) {
      for (std::int64_t b = 4; b <= 64; b += 4) {
        if (static_cast<std::size_t>(a * b) > limit) continue;
        best = std::min(best, count_touched({regular(60, a), regular(64, b)}, source).elements);
      }
    }
    EXPECT_LE(static_cast<double>(pass.nbytes_read), 1.2 * static_cast<double>(best)) << limit;
  }
}

TEST(RechunkPlan, AlignedGridsReadEachChunkOnce) {
  const RechunkPass pass = plan_pass({regular(100, 4)}, {regular(100, 10)}, 1, 20);
  EXPECT_EQ(pass.block_sizes[0], regular(100, 20));
  EXPECT_EQ(pass.nbytes_read, 100);
}

TEST(RechunkPlan, MapsToSeriesTakeTwoPasses) {
  const ChunkSizes maps = {regular(1000, 1), regular(200, 200)};
  const ChunkSizes series = {regular(1000, 1000), regular(200, 2)};
  const auto passes = plan_passes(maps, series, 4, 40000);
  ASSERT_EQ(passes.size(), 2U);
  EXPECT_EQ(passes[0].block_sizes, (ChunkSizes{regular(1000, 50), {200}}));
  EXPECT_EQ(passes[1].block_sizes, (ChunkSizes{{1000}, regular(200, 10)}));
}

TEST(RechunkPlan, SaysHowMuchMemoryAChunkNeeds) {
  try {
    plan_passes({regular(8, 8)}, {regular(8, 2)}, 4, 31);
    FAIL() << "a chunk that does not fit was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("chunk of the source of (8) needs 64 bytes"),
              std::string::npos)
        << e.what();
  }
}

TEST(RechunkPlan, EmptyArraysHaveNoBlocks) {
  const auto passes = plan_passes({{}, regular(5, 2)}, {{}, regular(5, 5)}, 4, 1000);
  ASSERT_EQ(passes.size(), 1U);
  EXPECT_EQ(passes[0].nblocks, 0);
  EXPECT_EQ(passes[0].nbytes_read, 0);
  EXPECT_TRUE(block_selections(passes[0].block_sizes).empty());
}

TEST(RechunkPlan, ShardsAreWholeTrailingDimensions) {
  const std::size_t mib = std::size_t{1} << 20;
  EXPECT_EQ(choose_shards({1000, 512, 512}, {1, 512, 512}, 4, 1024 * mib), (Shape{64, 512, 512}));
  EXPECT_EQ(choose_shards({100, 10}, {10, 10}, 8, 1024 * mib), (Shape{100, 10}));
  EXPECT_EQ(choose_shards({10, 10}, {10, 10}, 8, 1024 * mib), std::nullopt);
  EXPECT_EQ(choose_shards({64, 4096, 4096}, {2, 4096, 4096}, 4, 1024 * mib), std::nullopt);
}

}  // namespace
}  // namespace headrace::test
