#include "engine/query/inner_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace {
namespace {

std::vector<std::int64_t> laid_out(ShardOrder order, const Shape& grid) {
  const InnerOrder chunks(order, grid);
  std::int64_t n = 1;
  for (const std::int64_t extent : grid) n *= extent;
  std::vector<std::int64_t> inner;
  for (std::int64_t place = 0; place < n; ++place) {
    inner.push_back(chunks.inner(place));
    EXPECT_EQ(chunks.place(inner.back()), place);
  }
  return inner;
}

using Indices = std::vector<std::int64_t>;

TEST(InnerOrder, OfTwoDimensions) {
  const Shape grid = {3, 2};
  EXPECT_EQ(laid_out(ShardOrder::lexicographic, grid), (Indices{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(laid_out(ShardOrder::colexicographic, grid), (Indices{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(laid_out(ShardOrder::morton, grid), (Indices{0, 2, 1, 3, 4, 5}));
}

// zarr.core.indexing.morton_order_coords of zarr 3.4.2.
TEST(InnerOrder, OfThreeDimensionsAsZarrPythonHasIt) {
  EXPECT_EQ(laid_out(ShardOrder::morton, {5, 1, 3}),
            (Indices{0, 3, 1, 4, 6, 9, 7, 10, 2, 5, 8, 11, 12, 13, 14}));
  EXPECT_EQ(laid_out(ShardOrder::morton, {2, 3, 4}),
            (Indices{0, 12, 4, 16, 1, 13, 5, 17, 8,  20, 9,  21,
                     2, 14, 6, 18, 3, 15, 7, 19, 10, 22, 11, 23}));
}

TEST(InnerOrder, OfOneChunk) {
  EXPECT_EQ(laid_out(ShardOrder::morton, {}), Indices{0});
  EXPECT_EQ(laid_out(ShardOrder::morton, {1, 1}), Indices{0});
}

}  // namespace
}  // namespace headrace
