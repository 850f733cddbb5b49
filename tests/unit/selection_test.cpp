#include "format/selection.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "headrace/error.h"

namespace headrace {
namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

struct Failure {
  ErrorCode code;
  std::string message;
};

Failure failure_of(const Selection& selection, const Shape& shape, const Shape& chunks = {}) {
  try {
    resolve_selection(selection, shape, chunks);
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::io, ""};
}

std::vector<std::int64_t> indices_of(const DimSelection& dim) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < dim.count; ++i) out.push_back(dim.index(i));
  return out;
}

// What Python's range(*slice(start, stop, step).indices(n)) gives, by the definition in its
// documentation: i, i + k, i + 2k, ... up to but not including j.
std::vector<std::int64_t> python_slice(const Slice& s, std::int64_t n) {
  __extension__ typedef __int128 Wide;
  Wide i = 0, j = 0;
  const Wide k = s.step;
  if (k > 0) {
    i = s.start ? *s.start : 0;
    j = s.stop ? *s.stop : n;
    if (i < 0) i += n;
    if (i < 0) i = 0;
    if (s.stop && j < 0) j += n;
    if (j > n) j = n;
  } else {
    i = s.start ? *s.start : n - 1;
    if (s.start && i < 0) i += n;
    if (i >= n) i = n - 1;
    j = s.stop ? *s.stop : -1;
    if (s.stop && j < 0) j += n;
    if (j < -1) j = -1;
  }
  std::vector<std::int64_t> out;
  for (; k > 0 ? i < j : i > j; i += k) out.push_back(static_cast<std::int64_t>(i));
  return out;
}

TEST(Selection, SlicesAreThoseOfPython) {
  const std::optional<std::int64_t> bounds[] = {
      std::nullopt, 0, 1, 2, 3, 5, 6, 7, 100, kMax, -1, -2, -5, -6, -7, -100, kMin};
  const std::int64_t steps[] = {1, 2, 3, 6, 7, kMax, -1, -2, -3, -6, -7, kMin, kMin + 1};
  for (std::int64_t n : {0, 1, 2, 6}) {
    for (const auto& start : bounds) {
      for (const auto& stop : bounds) {
        for (std::int64_t step : steps) {
          const Slice slice{start, stop, step};
          const ResolvedSelection r = resolve_selection({slice}, {n}, {});
          ASSERT_EQ(indices_of(r.dims[0]), python_slice(slice, n))
              << n << " " << start.value_or(-77) << " " << stop.value_or(-77) << " " << step;
          ASSERT_GT(r.dims[0].step, 0);
          ASSERT_TRUE(r.dims[0].count > 1 || r.dims[0].step == 1);
          ASSERT_EQ(r.result_shape, Shape{r.dims[0].count});
        }
      }
    }
  }
}

TEST(Selection, HugeExtentsDoNotOverflow) {
  const ResolvedSelection up = resolve_selection({Slice{{}, {}, kMax - 1}}, {kMax}, {});
  EXPECT_EQ(indices_of(up.dims[0]), (std::vector<std::int64_t>{0, kMax - 1}));
  const ResolvedSelection down = resolve_selection({Slice{{}, {}, kMin}}, {kMax}, {});
  EXPECT_EQ(indices_of(down.dims[0]), (std::vector<std::int64_t>{kMax - 1}));
  EXPECT_EQ(resolve_selection({}, {kMax, 2}, {}).result_shape, (Shape{kMax, 2}));
  EXPECT_EQ(resolve_selection({-1}, {kMax}, {}).dims[0].start, kMax - 1);
  const ResolvedSelection last =
      resolve_selection(Selection::blocks({std::int64_t{-1}}), {kMax}, {kMax - 5});
  EXPECT_EQ(last.dims[0].count, 5);
  EXPECT_EQ(failure_of({kMin}, {kMax}).code, ErrorCode::out_of_bounds);
}

TEST(Selection, BasicShapesAndAxes) {
  ResolvedSelection r = resolve_selection({ellipsis, 1, newaxis}, {4, 5, 6}, {});
  EXPECT_EQ(r.result_shape, (Shape{4, 5, 1}));
  EXPECT_EQ(r.result_axis, (std::vector<int>{0, 1, -1}));
  r = resolve_selection({newaxis, 3, ellipsis, slice(0, 2)}, {4, 5, 6}, {});
  EXPECT_EQ(r.result_shape, (Shape{1, 5, 2}));
  EXPECT_EQ(r.result_axis, (std::vector<int>{-1, 1, 2}));
  r = resolve_selection({1, 2, ellipsis, 3}, {4, 5, 6}, {});  // an ellipsis of nothing
  EXPECT_EQ(r.result_shape, Shape{});
  EXPECT_EQ(r.size(), 1u);
  r = resolve_selection({ellipsis}, {}, {});
  EXPECT_EQ(r.result_shape, Shape{});
  r = resolve_selection({newaxis, newaxis}, {}, {});
  EXPECT_EQ(r.result_shape, (Shape{1, 1}));
  EXPECT_EQ(resolve_selection({slice(5, 2)}, {4}, {}).size(), 0u);
}

TEST(Selection, ErrorsSpeakAsNumpyDoes) {
  EXPECT_EQ(failure_of({10}, {10}).message, "index 10 is out of bounds for axis 0 with size 10");
  EXPECT_EQ(failure_of({all, -11}, {3, 10}).message,
            "index -11 is out of bounds for axis 1 with size 10");
  EXPECT_EQ(failure_of({0}, {0}).message, "index 0 is out of bounds for axis 0 with size 0");
  EXPECT_EQ(failure_of({0, 0, 0}, {3, 3}).message,
            "too many indices for array: array is 2-dimensional, but 3 were indexed");
  EXPECT_EQ(failure_of({0}, {}).code, ErrorCode::out_of_bounds);
  EXPECT_EQ(failure_of({ellipsis, ellipsis}, {3}).message,
            "an index can only have a single ellipsis ('...')");
  EXPECT_EQ(failure_of({Slice{0, 1, 0}}, {3}).code, ErrorCode::out_of_bounds);
}

TEST(Selection, ModesRefuseItemsTheyDoNotTake) {
  const IndexArray list{{0, 1}, {2}};
  const Mask mask{{1, 0, 1}, {3}};
  const Shape shape{3}, chunks{2};
  for (const auto& s : {Selection{list},
                        Selection{mask},
                        Selection::orthogonal({newaxis}),
                        Selection::coordinate({all}),
                        Selection::coordinate({ellipsis}),
                        Selection::coordinate({newaxis}),
                        Selection::blocks({newaxis}),
                        Selection::blocks({list})}) {
    EXPECT_EQ(failure_of(s, shape, chunks).code, ErrorCode::invalid_argument);
  }
  EXPECT_EQ(failure_of(Selection::blocks({Slice{0, 2, 2}}), shape, chunks).code,
            ErrorCode::out_of_bounds);
  EXPECT_EQ(failure_of(Selection::coordinate({mask, 0}), {3, 3}).code, ErrorCode::invalid_argument);
}

TEST(Selection, ListsAndMasksOfWrongShape) {
  EXPECT_EQ(failure_of(Selection::orthogonal({IndexArray{{0, 1}, {3}}}), {3}).code,
            ErrorCode::invalid_argument);
  EXPECT_EQ(failure_of(Selection::orthogonal({IndexArray{{0, 1}, {-2}}}), {3}).code,
            ErrorCode::invalid_argument);
  EXPECT_EQ(failure_of(Selection::orthogonal({IndexArray{{0, 1}, {1, 2}}}), {3}).code,
            ErrorCode::out_of_bounds);
  EXPECT_EQ(failure_of(Selection::orthogonal({IndexArray{{0, 3}, {2}}}), {3}).message,
            "index 3 is out of bounds for axis 0 with size 3");
  EXPECT_EQ(failure_of(Selection::orthogonal({Mask{{1, 1}, {2}}}), {3}).code,
            ErrorCode::out_of_bounds);
  EXPECT_EQ(failure_of(Selection::orthogonal({Mask{{1, 1}, {3}}}), {3}).code,
            ErrorCode::invalid_argument);
  EXPECT_EQ(failure_of(Selection::coordinate({Mask{{1, 1, 1}, {3}}}), {3, 1}).code,
            ErrorCode::out_of_bounds);
  EXPECT_EQ(failure_of(Selection::coordinate({0}), {3, 3}).code, ErrorCode::out_of_bounds);
  EXPECT_EQ(failure_of(Selection::coordinate({IndexArray{{0, 1}, {2}}, IndexArray{{0, 1, 2}, {3}}}),
                       {3, 3})
                .code,
            ErrorCode::out_of_bounds);
}

TEST(Selection, OrthogonalAsZarrPython) {
  const ResolvedSelection r = resolve_selection(
      Selection::orthogonal(
          {IndexArray{{2, -1, 0, 0}, {4}}, 1, Mask{{1, 0, 1, 1}, {4}}, Slice{{}, {}, -2}}),
      {3, 4, 4, 5},
      {});
  EXPECT_EQ(r.result_shape, (Shape{4, 3, 3}));
  EXPECT_EQ(r.result_axis, (std::vector<int>{0, -1, 1, 2}));
  EXPECT_EQ(indices_of(r.dims[0]), (std::vector<std::int64_t>{2, 2, 0, 0}));
  EXPECT_EQ(indices_of(r.dims[2]), (std::vector<std::int64_t>{0, 2, 3}));
  EXPECT_EQ(indices_of(r.dims[3]), (std::vector<std::int64_t>{4, 2, 0}));
  const ResolvedSelection even =
      resolve_selection(Selection::orthogonal({IndexArray{{1, 3, 5}, {3}}}), {9}, {});
  EXPECT_FALSE(even.dims[0].is_list) << "an even list is planned as a range";
  EXPECT_EQ(indices_of(even.dims[0]), (std::vector<std::int64_t>{1, 3, 5}));
}

TEST(Selection, CoordinatesBroadcast) {
  const ResolvedSelection r = resolve_selection(
      Selection::coordinate({IndexArray{{1, 2}, {2, 1}}, IndexArray{{0, -1, 3}, {3}}, 5}),
      {3, 4, 6},
      {});
  ASSERT_TRUE(r.pointwise);
  EXPECT_EQ(r.result_shape, (Shape{2, 3}));
  EXPECT_EQ(r.dims[0].indices, (std::vector<std::int64_t>{1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(r.dims[1].indices, (std::vector<std::int64_t>{0, 3, 3, 0, 3, 3}));
  EXPECT_EQ(r.dims[2].indices, (std::vector<std::int64_t>{5, 5, 5, 5, 5, 5}));
  EXPECT_EQ(resolve_selection(Selection::coordinate({1, 2}), {3, 4}, {}).result_shape, Shape{1});
  EXPECT_EQ(
      resolve_selection(Selection::coordinate({IndexArray{{}, {0}}, 2}), {3, 4}, {}).result_shape,
      Shape{0});
}

TEST(Selection, PointMasks) {
  const ResolvedSelection r =
      resolve_selection(Selection::coordinate({Mask{{0, 1, 0, 1, 0, 1}, {2, 3}}}), {2, 3}, {});
  EXPECT_EQ(r.result_shape, Shape{3});
  EXPECT_EQ(r.dims[0].indices, (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_EQ(r.dims[1].indices, (std::vector<std::int64_t>{1, 0, 2}));
  EXPECT_EQ(resolve_selection(Selection::coordinate({Mask{{}, {0, 3}}}), {0, 3}, {}).result_shape,
            Shape{0});
  EXPECT_EQ(resolve_selection(Selection::coordinate({Mask{{1}, {}}}), {}, {}).result_shape,
            Shape{1});
}

TEST(Selection, BlocksKeepTheAxisAndEndAtTheArray) {
  const Shape shape{10, 7}, chunks{4, 3};
  ResolvedSelection r = resolve_selection(Selection::blocks({2}), shape, chunks);
  EXPECT_EQ(r.result_shape, (Shape{2, 7}));
  EXPECT_EQ(indices_of(r.dims[0]), (std::vector<std::int64_t>{8, 9}));
  r = resolve_selection(Selection::blocks({ellipsis, slice(1, 9)}), shape, chunks);
  EXPECT_EQ(r.result_shape, (Shape{10, 4}));
  EXPECT_EQ(indices_of(r.dims[1]), (std::vector<std::int64_t>{3, 4, 5, 6}));
  EXPECT_EQ(resolve_selection(Selection::blocks({slice(3, 9)}), shape, chunks).result_shape,
            (Shape{0, 7}));
  EXPECT_EQ(failure_of(Selection::blocks({3}), shape, chunks).code, ErrorCode::out_of_bounds);
  EXPECT_EQ(failure_of(Selection::blocks({-4}), shape, chunks).code, ErrorCode::out_of_bounds);
}

// Random basic selections against the plain definition, element by element.
TEST(Selection, RandomBasicSelectionsMatchEnumeration) {
  std::mt19937_64 random(20240601);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    Shape shape(static_cast<std::size_t>(pick(0, 4)));
    for (auto& extent : shape) extent = pick(0, 5);
    std::vector<SelectionItem> items;
    Shape expected_shape;
    std::vector<std::vector<std::int64_t>> expected;
    bool valid = true, used_ellipsis = false;
    const std::size_t named =
        static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(shape.size())));
    const std::size_t before = static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(named)));
    const auto whole = [&] {
      expected.emplace_back();
      for (std::int64_t i = 0; i < shape[expected.size() - 1]; ++i) expected.back().push_back(i);
      expected_shape.push_back(shape[expected.size() - 1]);
    };
    for (std::size_t n = 0; n < named; ++n) {
      if (pick(0, 5) == 0) {
        items.emplace_back(newaxis);
        expected_shape.push_back(1);
      }
      if (n == before && !used_ellipsis && pick(0, 1) == 0) {
        items.emplace_back(ellipsis);
        used_ellipsis = true;
        for (std::size_t i = named; i < shape.size(); ++i) whole();
      }
      const std::int64_t extent = shape[expected.size()];
      if (pick(0, 2) == 0) {
        const std::int64_t i = pick(-extent - 1, extent);
        items.emplace_back(i);
        valid &= i >= -extent && i < extent;
        expected.push_back({i < 0 ? i + extent : i});
      } else {
        Slice s;
        if (pick(0, 2)) s.start = pick(-7, 7);
        if (pick(0, 2)) s.stop = pick(-7, 7);
        while ((s.step = pick(-3, 3)) == 0) {
        }
        items.emplace_back(s);
        expected.push_back(python_slice(s, extent));
        expected_shape.push_back(static_cast<std::int64_t>(expected.back().size()));
      }
    }
    while (expected.size() < shape.size()) whole();

    if (!valid) {
      EXPECT_EQ(failure_of(Selection(items), shape).code, ErrorCode::out_of_bounds);
      continue;
    }
    const ResolvedSelection r = resolve_selection(Selection(items), shape, {});
    ASSERT_EQ(r.result_shape, expected_shape) << round;
    for (std::size_t d = 0; d < shape.size(); ++d)
      ASSERT_EQ(indices_of(r.dims[d]), expected[d]) << round;
  }
}

}  // namespace
}  // namespace headrace
