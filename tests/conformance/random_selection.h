#pragma once

#include <random>
#include <utility>
#include <vector>

#include "headrace/selection.h"

namespace headrace::test {

// Indices, slices either way and past the ends, and lists.
inline Selection random_selection(const Shape& shape, std::mt19937& random) {
  auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  std::vector<SelectionItem> items;
  bool orthogonal = false;
  for (std::int64_t extent : shape) {
    const auto kind = extent == 0 ? 1 : pick(0, 4);
    if (kind == 0) {
      items.emplace_back(pick(-extent, extent - 1));
    } else if (kind == 4) {
      IndexArray list;
      for (std::int64_t n = pick(1, 6); n > 0; --n) list.indices.push_back(pick(0, extent - 1));
      list.shape = {static_cast<std::int64_t>(list.indices.size())};
      items.emplace_back(std::move(list));
      orthogonal = true;
    } else {
      const std::int64_t step = pick(0, 1) == 0 ? pick(1, 4) : -pick(1, 4);
      items.emplace_back(Slice{pick(-extent - 1, extent + 1), pick(-extent - 1, extent + 1), step});
    }
  }
  return Selection(std::move(items), orthogonal ? SelectionMode::orthogonal : SelectionMode::basic);
}

}  // namespace headrace::test
