#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "headrace/cells.h"
#include "headrace/error.h"
#include "loader/row_values.h"

namespace headrace::cells {
namespace {

// A matrix of CSR in memory, as two runs.
struct Store {
  std::vector<float> data;
  std::vector<std::uint16_t> indices;
  std::vector<std::int64_t> indptr;
  std::int64_t columns;

  Window window(std::int64_t wanted, std::vector<std::int32_t> map = {}) const {
    const auto rows = static_cast<std::int64_t>(indptr.size()) - 1, half = rows / 2;
    return Window({{"store", columns, DType::float32, DType::uint16, std::move(map)}},
                  {run(0, half), run(half, rows)},
                  wanted);
  }
  Run run(std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = indptr[static_cast<std::size_t>(begin)],
                       last = indptr[static_cast<std::size_t>(end)];
    return {0,
            begin,
            end - begin,
            data.data() + first,
            indices.data() + first,
            indptr.data() + begin,
            last - first};
  }
};

Store random_store(std::mt19937& random, std::int64_t rows, std::int64_t columns) {
  Store store{{}, {}, {0}, columns};
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      if (random() % 3 != 0) continue;
      store.indices.push_back(static_cast<std::uint16_t>(column));
      store.data.push_back(static_cast<float>(1 + random() % 100));
    }
    store.indptr.push_back(static_cast<std::int64_t>(store.data.size()));
  }
  return store;
}

std::vector<float> dense_rows(const Window& window,
                              std::span<const std::int64_t> rows,
                              std::size_t columns,
                              const Transform& transform = {}) {
  std::vector<float> result(rows.size() * columns, -1);
  window.gather_dense(rows, transform, result.data());
  return result;
}

TEST(CellWindow, RowsAreThoseOfTheStore) {
  std::mt19937 random(1);
  const Store store = random_store(random, 101, 17);
  const std::vector<std::int32_t> map{
      3, -1, 0, -1, -1, 2, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1};
  std::vector<std::int64_t> rows(300);
  for (std::int64_t& row : rows) row = static_cast<std::int64_t>(random() % 101);
  for (const bool selects : {false, true}) {
    const std::size_t columns = selects ? 4 : 17;
    const Window window = store.window(static_cast<std::int64_t>(columns),
                                       selects ? map : std::vector<std::int32_t>{});
    ASSERT_EQ(window.rows(), 101);
    std::vector<float> wanted(rows.size() * columns);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<std::size_t>(rows[i]);
      for (std::int64_t at = store.indptr[row]; at < store.indptr[row + 1]; ++at) {
        const std::size_t from = store.indices[static_cast<std::size_t>(at)];
        const std::int32_t to = selects ? map[from] : static_cast<std::int32_t>(from);
        if (to >= 0)
          wanted[i * columns + static_cast<std::size_t>(to)] =
              store.data[static_cast<std::size_t>(at)];
      }
    }
    EXPECT_EQ(dense_rows(window, rows, columns), wanted);

    std::vector<std::int64_t> offsets(rows.size() + 1);
    window.count(rows, offsets);
    const auto elements = static_cast<std::size_t>(offsets.back());
    std::vector<float> data(elements), found(wanted.size());
    std::vector<std::int32_t> indices(elements);
    window.gather_csr(rows, offsets, {}, data.data(), indices.data());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto begin = static_cast<std::size_t>(offsets[i]),
                 end = static_cast<std::size_t>(offsets[i + 1]);
      EXPECT_TRUE(std::is_sorted(indices.begin() + offsets[i], indices.begin() + offsets[i + 1]));
      for (std::size_t at = begin; at < end; ++at)
        found[i * columns + static_cast<std::size_t>(indices[at])] = data[at];
    }
    EXPECT_EQ(found, wanted);
  }
}

TEST(CellWindow, RowsAreScaledToTheirTotal) {
  std::mt19937 random(2);
  const Store store = random_store(random, 20, 9);
  const std::vector<std::int64_t> rows{19, 0, 7};
  const std::vector<float> found =
      dense_rows(store.window(9), rows, 9, {100.0, false, DType::float32});
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_NEAR(loader::sum_of(found.data() + i * 9, 9), 100, 1e-3);
}

TEST(CellWindow, RefusesWhatPointsOutOfTheRun) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(),
                         kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<float> data(4);
  const std::vector<std::uint16_t> indices{0, 1, 2, 9};
  const std::array<std::array<std::int64_t, 3>, 7> positions{{{0, 5, 5},
                                                              {0, 2, 1},
                                                              {3, 2, 4},
                                                              {0, kMost, kMost},
                                                              {kLeast, kMost, kMost},
                                                              {kMost, kLeast, 0},
                                                              {0, 0, 4}}};
  for (const auto& indptr : positions) {
    const Window window({{"store", 3, DType::float32, DType::uint16, {}}},
                        {{0, 7, 2, data.data(), indices.data(), indptr.data(), 4}},
                        3);
    const std::vector<std::int64_t> rows{0, 1};
    std::vector<float> out(6);
    try {
      window.gather_dense(rows, {}, out.data());
      FAIL() << indptr[0] << " " << indptr[1] << " " << indptr[2];
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      EXPECT_NE(std::string(error.what()).find("store row "), std::string::npos) << error.what();
    }
  }
}

TEST(RowValues, LogarithmsAreWithinTwoUnitsInTheLastPlace) {
  std::mt19937 random(3);
  std::vector<float> values;
  for (int i = 0; i < 100000; ++i) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (x > -1 && std::isfinite(x)) values.push_back(x);
  }
  std::vector<float> found = values;
  loader::scale(found.data(), static_cast<std::int64_t>(found.size()), 1, true);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double wanted = std::log1p(static_cast<double>(values[i]));
    const float nearest = static_cast<float>(wanted);
    const double unit = std::abs(static_cast<double>(std::nextafter(nearest, INFINITY)) - nearest);
    ASSERT_LE(std::abs(found[i] - wanted), 2 * unit) << values[i];
  }
}

}  // namespace
}  // namespace headrace::cells
