#include "format/chunk_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "headrace/error.h"

namespace headrace {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

// Array index at each position of the result, as the plan says; checks the plan's own promises.
std::vector<std::int64_t> replay(const DimPlan& plan,
                                 std::int64_t count,
                                 std::int64_t chunk_extent) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count), -1);
  std::int64_t previous = -1, list_at = 0;
  bool ascending = true;
  const auto put = [&](std::int64_t result, std::int64_t chunk, std::int64_t local) {
    ASSERT_GE(local, 0);
    ASSERT_LT(local, chunk_extent);
    auto& slot = out.at(static_cast<std::size_t>(result));
    EXPECT_EQ(slot, -1) << "placed twice";
    slot = chunk * chunk_extent + local;
  };
  for (const DimPiece& piece : plan.pieces) {
    EXPECT_GT(piece.chunk, previous) << "chunks ascend, none twice";
    EXPECT_GT(piece.count, 0);
    previous = piece.chunk;
    if (plan.is_list) {
      EXPECT_EQ(piece.list_first, list_at);
      list_at += piece.count;
    }
    std::int64_t last_local = -1;
    for (std::int64_t i = 0; i < piece.count; ++i) {
      if (plan.is_list) {
        const auto at = static_cast<std::size_t>(piece.list_first + i);
        ascending &= last_local <= plan.local_index.at(at);
        last_local = plan.local_index.at(at);
        put(plan.result_index.at(at), piece.chunk, last_local);
      } else {
        put(piece.result_first + i * piece.result_step, piece.chunk, piece.first + i * piece.step);
      }
    }
  }
  if (plan.is_list) {
    EXPECT_EQ(plan.list_ascending, ascending);
  }
  return out;
}

TEST(ChunkGrid, RandomPlansMatchEnumeration) {
  std::mt19937_64 random(7);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 5000; ++round) {
    const std::int64_t extent = pick(1, 60), chunk = pick(1, 70);
    DimSelection s;
    if (pick(0, 1) == 0) {
      s.is_list = true;
      s.count = pick(0, 40);
      for (std::int64_t i = 0; i < s.count; ++i) s.indices.push_back(pick(0, extent - 1));
      if (pick(0, 1) == 0) std::sort(s.indices.begin(), s.indices.end());
    } else {
      s.start = pick(0, extent - 1);
      s.step = pick(1, 25);
      s.count = pick(0, (extent - 1 - s.start) / s.step + 1);
      s.reversed = s.count > 1 && pick(0, 1) == 0;
    }
    std::vector<std::int64_t> expected;
    for (std::int64_t i = 0; i < s.count; ++i) expected.push_back(s.index(i));
    ASSERT_EQ(replay(plan_dimension(s, chunk), s.count, chunk), expected) << round;
  }
}

TEST(ChunkGrid, EqualIndicesKeepTheirOrder) {
  DimSelection s;
  s.is_list = true;
  s.indices = {9, 0, 9, 1, 0};
  s.count = 5;
  const DimPlan plan = plan_dimension(s, 5);
  EXPECT_EQ(plan.local_index, (std::vector<std::int64_t>{0, 1, 0, 4, 4}));
  EXPECT_EQ(plan.result_index, (std::vector<std::int64_t>{1, 3, 4, 0, 2}));
  EXPECT_FALSE(plan.list_ascending);
}

TEST(ChunkGrid, LongStepsSkipChunks) {
  DimSelection s;
  s.start = 5;
  s.step = kMax / 4;
  s.count = 4;
  const DimPlan plan = plan_dimension(s, 10);  // 9e17 chunks between the pieces
  ASSERT_EQ(plan.pieces.size(), 4u);
  EXPECT_EQ(plan.pieces[3].chunk, (5 + 3 * (kMax / 4)) / 10);
}

TEST(ChunkGrid, EdgesOfTheIntegers) {
  DimSelection s;
  s.start = kMax - 2;
  s.count = 2;
  DimPlan plan = plan_dimension(s, kMax);
  ASSERT_EQ(plan.pieces.size(), 1u);
  EXPECT_EQ(plan.pieces[0].first, kMax - 2);
  plan = plan_dimension(s, 2);
  EXPECT_EQ(plan.pieces.size(), 2u);
  EXPECT_THROW(plan_dimension(DimSelection{}, 0), Error);
}

TEST(ChunkGrid, GridShapeRoundsUp) {
  EXPECT_EQ(grid_shape({10, 0, 1, kMax}, {4, 4, 4, 1}), (Shape{3, 0, 1, kMax}));
  EXPECT_EQ(grid_shape({}, {}), Shape{});
  EXPECT_EQ(grid_shape({kMax}, {2}), Shape{kMax / 2 + 1});
  EXPECT_THROW(grid_shape({1}, {}), Error);
  EXPECT_THROW(grid_shape({1}, {0}), Error);
}

ChunkEdges edges_of(const std::vector<std::int64_t>& extents) {
  ChunkEdges edges;
  for (const std::int64_t extent : extents) edges.append(extent, 1);
  return edges;
}

TEST(ChunkEdges, EqualNeighboursAreOneRun) {
  ChunkEdges edges = edges_of({10, 10, 13});
  edges.append(13, std::int64_t{1} << 50);
  EXPECT_EQ(edges.bands, (std::vector<ChunkBand>{{0, 0, 10}, {2, 20, 13}}));
  EXPECT_EQ(edges.count_of(edges.bands[0]), 2);
  EXPECT_EQ(edges.count_of(edges.bands[1]), 1 + (std::int64_t{1} << 50));
  EXPECT_EQ(edges.largest_extent(), 13);
  EXPECT_EQ(edges.first_index_of(3), 33);
  EXPECT_EQ(edges.band_of_index(19).extent, 10);
  EXPECT_EQ(edges.band_of_index(20).extent, 13);
  EXPECT_EQ(edges.band_of_chunk(2).first_index, 20);
}

TEST(ChunkEdges, GrowByOneChunk) {
  ChunkEdges edges = edges_of({10, 5});
  edges.grow_to(12);
  EXPECT_EQ(edges.end, 15);
  edges.grow_to(40);
  EXPECT_EQ(edges.bands.back(), (ChunkBand{2, 15, 25}));
  ChunkEdges repeating = ChunkEdges::repeating(7);
  repeating.grow_to(kMax);
  EXPECT_EQ(repeating.bands.size(), 1u);
}

TEST(ChunkEdges, RefuseWhatCannotBeCounted) {
  ChunkEdges edges = edges_of({kMax - 5});
  EXPECT_THROW(edges.append(6, 1), Error);
  EXPECT_THROW(edges.append(1, kMax), Error);
  EXPECT_THROW(edges.append(kMax, kMax), Error);
  EXPECT_THROW(edges.append(0, 1), Error);
  EXPECT_THROW(edges.append(-1, 1), Error);
  EXPECT_THROW(edges.append(1, 0), Error);
  EXPECT_THROW(ChunkEdges::repeating(0), Error);
  EXPECT_EQ(edges.end, kMax - 5);
}

TEST(ChunkEdges, PlansAreCutAtTheEndsOfRuns) {
  const ChunkEdges edges = edges_of({4, 4, 1, 9});
  DimSelection s;
  s.start = 1;
  s.step = 3;
  s.count = 5;  // 1, 4, 7, 10, 13
  const DimPlan plan = plan_dimension(s, edges);
  ASSERT_EQ(plan.pieces.size(), 2u);
  EXPECT_EQ(plan.pieces[0].chunk, 0);
  EXPECT_EQ(plan.pieces[0].count, 3);
  EXPECT_EQ(plan.pieces[1].chunk, 2);
  EXPECT_EQ(plan.pieces[1].first, 1);
}

TEST(ChunkEdges, Grids) {
  const std::vector<ChunkEdges> edges = {edges_of({4, 4, 1, 9}), ChunkEdges::repeating(3)};
  EXPECT_EQ(grid_shape({9, 7}, {9, 3}, edges), (Shape{3, 3}));
  EXPECT_EQ(grid_shape({0, 1}, {9, 3}, edges), (Shape{0, 1}));
  EXPECT_EQ(chunk_sizes({10, 7}, {9, 3}, edges), (std::vector<Shape>{{4, 4, 1, 1}, {3, 3, 1}}));
  EXPECT_EQ(shape_of_chunk({3, 8}, {9, 3}, edges), (Shape{9, 3}));
  EXPECT_THROW(chunk_sizes({kMax}, {1}), Error);
}

}  // namespace
}  // namespace headrace
