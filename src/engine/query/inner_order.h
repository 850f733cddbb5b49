#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "engine/query/coordinates.h"
#include "headrace/array.h"

namespace headrace {

// `unsupported` for more inner chunks in a shard than an index is read or written for.
void check_inner_count(const Shape& grid);

// Which inner chunk of a new shard lies where. Whatever their order in it, inner chunks are known
// by their index in C order of the grid.
class InnerOrder {
 public:
  InnerOrder(ShardOrder order, const Shape& grid);

  bool is_c() const { return inner_.empty(); }
  std::int64_t inner(std::int64_t place) const { return is_c() ? place : inner_[index(place)]; }
  std::int64_t place(std::int64_t inner) const { return is_c() ? inner : place_[index(inner)]; }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  // Both empty for C order.
  std::vector<std::int64_t> inner_;  // by place
  std::vector<std::int64_t> place_;  // by inner chunk
};

// The positions in a cut of a shard, in the order in which its inner chunks are to lie.
template <typename Query>
std::vector<std::size_t> positions_in_order(const InnerOrder& order,
                                            const typename Query::Cut& cut,
                                            const Shape& grid) {
  std::vector<std::size_t> positions(cut.size());
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  if (order.is_c()) return positions;
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < cut.size(); ++i) {
    Coordinates coordinates;
    Query child;
    cut.child(i, coordinates.at, child);
    places.push_back(order.place(linear_index(coordinates.at, grid)));
  }
  std::ranges::sort(positions, {}, [&](std::size_t i) { return places[i]; });
  return positions;
}

}  // namespace headrace
