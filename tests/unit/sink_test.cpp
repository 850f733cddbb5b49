#include "engine/query/sink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "engine/query/strided.h"

namespace headrace {
namespace {

// A random selection of a random chunk, and what it must do, element by element.
struct Case {
  Shape chunk;
  Box box;
  std::vector<std::vector<std::int64_t>> lists;
  std::size_t itemsize = 1;
  std::vector<std::byte> source;                           // the decoded chunk
  std::vector<std::byte> user;                             // the caller's memory, poisoned
  std::vector<std::pair<std::size_t, std::size_t>> moves;  // chunk offset -> user offset, bytes
};

class Cases {
 public:
  explicit Cases(unsigned seed) : random_(seed) {}

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  void make(Case& c, bool with_lists) {
    const auto ndim = static_cast<std::size_t>(pick(0, 4));
    c.itemsize =
        std::array<std::size_t, 7>{1, 2, 3, 4, 8, 16, 12}[static_cast<std::size_t>(pick(0, 6))];
    c.lists.resize(2 * ndim);
    std::size_t total = c.itemsize;
    for (std::size_t d = 0; d < ndim; ++d) {
      c.chunk.push_back(pick(1, 7));
      total *= static_cast<std::size_t>(c.chunk[d]);
      Axis axis;
      axis.first = pick(0, c.chunk[d] - 1);
      axis.step = pick(1, 3);
      axis.count = pick(1, (c.chunk[d] - 1 - axis.first) / axis.step + 1);
      if (pick(0, 2) == 0) {  // all of it, so that dimensions join
        axis = {};
        axis.count = c.chunk[d];
      }
      c.box.axes.push_back(axis);
    }
    c.source.resize(total);
    for (std::byte& b : c.source) b = static_cast<std::byte>(pick(0, 255));
    place(c);
    if (with_lists) use_lists(c);
    list_moves(c);
  }

 private:
  // The caller's array: C order over the counts in a random order of dimensions, some reversed.
  void place(Case& c) {
    const std::size_t ndim = c.chunk.size();
    std::vector<std::size_t> order(ndim);
    for (std::size_t d = 0; d < ndim; ++d) order[d] = d;
    if (pick(0, 1) == 0) std::shuffle(order.begin(), order.end(), random_);
    std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(c.itemsize) * pick(1, 2);
    for (std::size_t k = ndim; k-- > 0;) {
      Axis& axis = c.box.axes[order[k]];
      const bool reversed = pick(0, 3) == 0;
      axis.user_step = reversed ? -stride : stride;
      axis.user_first = reversed ? stride * (axis.count - 1) : 0;
      stride *= axis.count;
    }
    c.user.assign(static_cast<std::size_t>(stride) + c.itemsize, std::byte{0xAA});
    c.box.user = c.user.data();
  }

  void use_lists(Case& c) {
    for (std::size_t d = 0; d < c.chunk.size(); ++d) {
      Axis& axis = c.box.axes[d];
      if (pick(0, 1) == 0 || axis.count < 2) continue;
      for (std::int64_t i = 0; i < axis.count; ++i) {
        c.lists[2 * d].push_back(pick(0, c.chunk[d] - 1));
        c.lists[2 * d + 1].push_back(axis.user_first + axis.user_step * i);
      }
      axis.list = c.lists[2 * d].data();
      axis.user_list = c.lists[2 * d + 1].data();
    }
  }

  static void list_moves(Case& c) {
    const std::size_t ndim = c.chunk.size();
    Shape at(ndim, 0);
    const std::size_t n = c.box.size();
    for (std::size_t k = 0; k < n; ++k) {
      std::size_t chunk_offset = 0;
      std::ptrdiff_t user_offset = 0;
      for (std::size_t d = 0; d < ndim; ++d) {
        const Axis& axis = c.box.axes[d];
        const auto i = static_cast<std::size_t>(at[d]);
        const std::int64_t index = axis.list ? axis.list[i] : axis.first + axis.step * at[d];
        chunk_offset =
            chunk_offset * static_cast<std::size_t>(c.chunk[d]) + static_cast<std::size_t>(index);
        user_offset += axis.list ? axis.user_list[i] : axis.user_first + axis.user_step * at[d];
      }
      c.moves.emplace_back(chunk_offset * c.itemsize, static_cast<std::size_t>(user_offset));
      for (std::size_t d = ndim; d-- > 0;) {
        if (++at[d] < c.box.axes[d].count) break;
        at[d] = 0;
      }
    }
  }

  std::mt19937 random_;
};

std::vector<std::byte> expected_user(const Case& c) {
  std::vector<std::byte> user(c.user.size(), std::byte{0xAA});
  for (auto [from, to] : c.moves) std::memcpy(&user[to], &c.source[from], c.itemsize);
  return user;
}

TEST(BoxSink, ScattersAndGathersWhatTheBoxNames) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Cases cases(seed);
    Case c;
    cases.make(c, seed % 3 == 0);
    BoxSink sink(c.box, c.chunk, c.itemsize);
    sink.scatter(c.source.data());
    ASSERT_EQ(c.user, expected_user(c)) << "seed " << seed;

    std::vector<std::byte> chunk(c.source.size(), std::byte{0x55});
    std::vector<std::byte> wanted = chunk;
    for (auto [at, from] : c.moves) std::memcpy(&wanted[at], &c.user[from], c.itemsize);
    sink.gather(chunk.data());
    ASSERT_EQ(chunk, wanted) << "seed " << seed;
  }
}

TEST(BoxSink, TakesPiecesCutAnywhereInAnyOrder) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Cases cases(seed);
    Case c;
    cases.make(c, false);
    BoxSink sink(c.box, c.chunk, c.itemsize);
    ASSERT_TRUE(sink.ordered());
    std::vector<std::pair<std::size_t, std::size_t>> pieces;
    for (std::size_t at = 0; at < c.source.size();) {
      const auto n = std::min(c.source.size() - at, static_cast<std::size_t>(cases.pick(1, 40)));
      pieces.emplace_back(at, n);
      at += n;
    }
    for (std::size_t i = pieces.size(); i-- > 1;) {
      std::swap(pieces[i],
                pieces[static_cast<std::size_t>(cases.pick(0, static_cast<std::int64_t>(i)))]);
    }
    for (auto [at, n] : pieces) {
      bool wanted = false;
      for (auto [from, to] : c.moves) wanted |= from < at + n && at < from + c.itemsize;
      ASSERT_EQ(sink.wants(at, n), wanted) << "seed " << seed << " at " << at << " + " << n;
      if (wanted) {
        ASSERT_GT(at + n, sink.begin());
        ASSERT_LT(at, sink.end());
      }
      if (std::byte* direct = sink.direct(at, n)) {
        std::memcpy(direct, &c.source[at], n);
      } else {
        sink.put(at, ConstBytes(c.source).subspan(at, n));
      }
    }
    ASSERT_EQ(c.user, expected_user(c)) << "seed " << seed;
  }
}

TEST(BoxSink, FillsOnlyWhatTheBoxNames) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    Cases cases(seed);
    Case c;
    cases.make(c, seed % 3 == 0);
    std::vector<std::byte> element(c.itemsize);
    for (std::byte& b : element) b = static_cast<std::byte>(cases.pick(0, seed % 2 == 0 ? 0 : 255));
    fill_bytes(c.source.data(), c.source.size(), element);
    BoxSink(c.box, c.chunk, c.itemsize).fill(element);
    ASSERT_EQ(c.user, expected_user(c)) << "seed " << seed;
  }
}

TEST(PointSink, TakesPiecesAndServesARepeatedPointTwice) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    Cases cases(seed);
    const Shape chunk{cases.pick(1, 5), cases.pick(1, 9)};
    const std::size_t itemsize = 4;
    Points points;
    points.extent = {INT64_MAX, INT64_MAX};
    points.ndim = 2;
    const std::int64_t n = cases.pick(1, 12);
    std::vector<std::byte> user(static_cast<std::size_t>(n) * itemsize, std::byte{0xAA});
    points.user = user.data();
    std::vector<std::byte> source(static_cast<std::size_t>(chunk[0] * chunk[1]) * itemsize);
    for (std::byte& b : source) b = static_cast<std::byte>(cases.pick(0, 255));
    std::vector<std::byte> expected = user;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t row = cases.pick(0, chunk[0] - 1);
      const std::int64_t column = cases.pick(0, chunk[1] - 1);
      points.indices.push_back(row);
      points.indices.push_back(column);
      points.user_offset.push_back(i * 4);
      std::memcpy(&expected[static_cast<std::size_t>(i) * 4],
                  &source[static_cast<std::size_t>(row * chunk[1] + column) * 4],
                  4);
    }
    PointSink sink(points, chunk, itemsize);
    for (std::size_t at = 0; at < source.size();) {
      const auto length = std::min(source.size() - at, static_cast<std::size_t>(cases.pick(1, 10)));
      if (std::byte* direct = sink.direct(at, length)) {
        std::memcpy(direct, &source[at], length);
      } else {
        sink.put(at, ConstBytes(source).subspan(at, length));
      }
      at += length;
    }
    ASSERT_EQ(user, expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace headrace
