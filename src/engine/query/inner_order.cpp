#include "engine/query/inner_order.h"

#include <algorithm>
#include <string>

#include "base/limits.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// The bits of the coordinates in turn, the lowest of each first, of a dimension as many as its
// extent needs; in this order zarr-python lays out shards.
// https://github.com/google/neuroglancer/blob/master/src/datasource/precomputed/volume.md#compressed-morton-code
std::uint64_t morton_code(const Shape& at, const Shape& grid) {
  std::uint64_t code = 0;
  unsigned to = 0;
  for (unsigned bit = 0, before = ~0U; to != before; ++bit) {
    before = to;
    for (std::size_t d = 0; d < grid.size(); ++d) {
      if (static_cast<std::uint64_t>(grid[d] - 1) >> bit == 0) continue;
      code |= (static_cast<std::uint64_t>(at[d]) >> bit & 1) << to++;
    }
  }
  return code;
}

std::uint64_t column_major_index(const Shape& at, const Shape& grid) {
  std::uint64_t index = 0;
  for (std::size_t d = grid.size(); d-- > 0;)
    index = index * static_cast<std::uint64_t>(grid[d]) + static_cast<std::uint64_t>(at[d]);
  return index;
}

void next_in_c_order(Shape& at, const Shape& grid) {
  for (std::size_t d = grid.size(); d-- > 0;) {
    if (++at[d] < grid[d]) return;
    at[d] = 0;
  }
}

}  // namespace

void check_inner_count(const Shape& grid) {
  std::uint64_t n = 1;
  for (const std::int64_t extent : grid) {
    if (__builtin_mul_overflow(n, static_cast<std::uint64_t>(extent), &n) || n > kMaxInnerChunks) {
      throw Error(ErrorCode::unsupported,
                  "a shard of more than " + std::to_string(kMaxInnerChunks) +
                      " inner chunks, whose index is held in memory; larger inner chunks or "
                      "smaller shards have fewer");
    }
  }
}

InnerOrder::InnerOrder(ShardOrder order, const Shape& grid) {
  check_inner_count(grid);
  if (order == ShardOrder::lexicographic) return;
  std::size_t n = 1;
  for (const std::int64_t extent : grid) n *= index(extent);
  std::vector<std::uint64_t> keys;
  Shape at(grid.size(), 0);
  for (std::size_t i = 0; i < n; ++i, next_in_c_order(at, grid)) {
    keys.push_back(order == ShardOrder::morton ? morton_code(at, grid)
                                               : column_major_index(at, grid));
  }
  inner_.resize(n);
  std::iota(inner_.begin(), inner_.end(), std::int64_t{0});
  std::ranges::sort(inner_, {}, [&](std::int64_t i) { return keys[index(i)]; });
  place_.resize(n);
  for (std::size_t place = 0; place < n; ++place)
    place_[index(inner_[place])] = static_cast<std::int64_t>(place);
}

}  // namespace headrace
