#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include "base/thread_pool.h"
#include "device/device.h"
#include "headrace/cells.h"
#include "headrace/error.h"
#include "loader/cell_rows.h"
#include "loader/conversions.h"
#include "loader/row_values.h"

namespace headrace::cells {

using loader::ConvertRow;
using loader::number_of;
using loader::row_conversion;

void refuse(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "[cells] " + what);
}

void Window::Row::corrupt(const std::string& what) const {
  throw Error(ErrorCode::corrupt,
              "[cells] " + matrix.name + " row " + std::to_string(number) + ": " + what);
}

void Window::Row::column_outside() const {
  corrupt("a column outside of the " + std::to_string(matrix.columns));
}

namespace {

// Calls use(T{}) with the type that holds such a number; half stands for the types of 16 bits
// that C++ has not.
struct Half {
  std::uint16_t bits;
};

template <typename Use>
auto with_type(Number number, Use use) {
  switch (number) {
    case Number::int8:
      return use(std::int8_t{});
    case Number::int16:
      return use(std::int16_t{});
    case Number::int32:
      return use(std::int32_t{});
    case Number::int64:
      return use(std::int64_t{});
    case Number::boolean:
    case Number::uint8:
      return use(std::uint8_t{});
    case Number::uint16:
      return use(std::uint16_t{});
    case Number::uint32:
      return use(std::uint32_t{});
    case Number::uint64:
      return use(std::uint64_t{});
    case Number::float16:
    case Number::bfloat16:
      return use(Half{});
    case Number::float32:
      return use(float{});
    case Number::float64:
      break;
  }
  return use(double{});
}

bool is_integer(Number number) { return number >= Number::int8 && number <= Number::uint64; }

std::size_t itemsize_of(Number number) {
  return with_type(number, [](auto zero) { return sizeof(zero); });
}

// Columns as they are stored; false when one is none of the matrix.
template <typename Index>
[[gnu::always_inline]] inline bool copy_columns_of(const Index* from,
                                                   std::int64_t count,
                                                   std::uint64_t columns,
                                                   std::int32_t* to) {
  using Wide = std::conditional_t<sizeof(Index) == 8, std::uint64_t, std::uint32_t>;
  Wide largest = 0;  // what is negative is large
  for (std::int64_t i = 0; i < count; ++i) {
    const auto column = static_cast<Wide>(from[i]);
    largest = std::max(largest, column);
    to[i] = static_cast<std::int32_t>(column);
  }
  return count == 0 || largest < columns;
}

template <typename Index>
bool copy_columns_baseline(const Index* from,
                           std::int64_t count,
                           std::uint64_t columns,
                           std::int32_t* to) {
  return copy_columns_of(from, count, columns, to);
}

#if defined(__x86_64__)
template <typename Index>
__attribute__((target("avx2"))) bool copy_columns_avx2(const Index* from,
                                                       std::int64_t count,
                                                       std::uint64_t columns,
                                                       std::int32_t* to) {
  return copy_columns_of(from, count, columns, to);
}
#endif

template <typename Index>
bool copy_columns(const Index* from, std::int64_t count, std::uint64_t columns, std::int32_t* to) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return copy_columns_avx2(from, count, columns, to);
#endif
  return copy_columns_baseline(from, count, columns, to);
}

// One element of a row that the batch takes.
struct Kept {
  std::int32_t column;    // of the batch
  std::int64_t position;  // in the row
};

struct Scratch {
  std::vector<std::int32_t> columns;
  std::vector<std::uint8_t> values, computed;
  std::vector<Kept> kept, joined;
};

Scratch& scratch() {
  static thread_local Scratch own;
  return own;
}

template <typename T>
T* sized(std::vector<T>& vector, std::int64_t count) {
  if (vector.size() < static_cast<std::size_t>(count))
    vector.resize(static_cast<std::size_t>(count));
  return vector.data();
}

template <typename Row>
void read_columns(const Row& row, std::int32_t* to) {
  const bool good = with_type(row.layout.indices, [&](auto zero) {
    using Index = decltype(zero);
    if constexpr (std::is_integral_v<Index>)
      return copy_columns(reinterpret_cast<const Index*>(row.indices),
                          row.count,
                          static_cast<std::uint64_t>(row.matrix.columns),
                          to);
    else
      return false;
  });
  if (!good) row.column_outside();
}

template <typename T>
bool is_zero(T value) {
  if constexpr (std::is_same_v<T, Half>)
    return (value.bits & 0x7fffu) == 0;
  else
    return value == T{};
}

// The elements that the batch takes, in the order of their columns there.
template <typename Row>
const std::vector<Kept>& kept_of(const Row& row) {
  std::vector<Kept>& kept = scratch().kept;
  kept.clear();
  const std::vector<std::int32_t>& map = row.matrix.column_map;
  const auto keep = [&](std::int32_t column, std::int64_t position) {
    const std::int32_t to = map.empty() ? column : map[static_cast<std::size_t>(column)];
    if (to >= 0) kept.push_back({to, position});
  };
  if (row.indices != nullptr) {
    std::int32_t* const columns = sized(scratch().columns, row.count);
    read_columns(row, columns);
    for (std::int64_t i = 0; i < row.count; ++i) keep(columns[i], i);
  } else {
    with_type(row.layout.data, [&](auto zero) {
      const auto* values = reinterpret_cast<const decltype(zero)*>(row.data);
      for (std::int64_t i = 0; i < row.count; ++i)
        if (!is_zero(values[i])) keep(static_cast<std::int32_t>(i), i);
    });
  }
  if (row.layout.sorts)
    std::stable_sort(
        kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.column < b.column; });
  return kept;
}

bool ascends(const std::vector<Kept>& kept) {
  return std::adjacent_find(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) {
           return a.column >= b.column;
         }) == kept.end();
}

// All elements of a row, or null where their columns ascend, so that no two are of one.
const std::vector<Kept>* all_unless_ascending(const std::int32_t* columns, std::int64_t count) {
  bool falls = false;
  for (std::int64_t i = 1; i < count; ++i) falls |= columns[i - 1] >= columns[i];
  if (!falls) return nullptr;
  std::vector<Kept>& kept = scratch().kept;
  kept.clear();
  for (std::int64_t i = 0; i < count; ++i) kept.push_back({columns[i], i});
  return &kept;
}

// The first element of each column becomes the sum of all, the others zero.
template <typename T>
void join_columns(T* values, const std::vector<Kept>& kept) {
  if (ascends(kept)) return;
  std::vector<Kept>& order = scratch().joined;
  order = kept;
  std::stable_sort(
      order.begin(), order.end(), [](const Kept& a, const Kept& b) { return a.column < b.column; });
  T* sum = nullptr;
  for (std::size_t k = 0; k < order.size(); ++k) {
    T& value = values[order[k].position];
    if (k > 0 && order[k].column == order[k - 1].column) {
      *sum += value;
      value = 0;
    } else {
      sum = &value;
    }
  }
}

void convert_row(ConvertRow convert,
                 const std::uint8_t* from,
                 std::size_t from_size,
                 std::uint8_t* to,
                 std::size_t to_size,
                 std::int64_t count) {
  convert({from,
           to,
           count,
           static_cast<std::int64_t>(from_size),
           static_cast<std::int64_t>(to_size),
           0,
           1,
           std::numeric_limits<double>::quiet_NaN()});
}

bool has_two_of_one(const std::vector<std::int32_t>& map, std::int64_t columns) {
  if (map.empty()) return false;
  std::vector<bool> taken(static_cast<std::size_t>(columns));
  for (const std::int32_t to : map) {
    if (to < 0) continue;
    auto&& known = taken[static_cast<std::size_t>(to)];
    if (known) return true;
    known = true;
  }
  return false;
}

// Calls body(i) for each row, some rows a task.
template <typename Body>
void each_row(std::size_t rows, Body body) {
  constexpr std::size_t kRowsATask = 32;
  parallel_for((rows + kRowsATask - 1) / kRowsATask, [&](std::size_t task) {
    const std::size_t end = std::min(rows, (task + 1) * kRowsATask);
    for (std::size_t i = task * kRowsATask; i < end; ++i) body(i);
  });
}

}  // namespace

std::vector<Way> ways_of(std::span<const Matrix> matrices, const Transform& transform, bool sums) {
  const bool computes = transform.total || transform.log1p;
  if (computes && !transform.dtype) refuse("a transform without a type of the result");
  std::vector<Way> ways;
  for (const Matrix& matrix : matrices) {
    const Number from = *number_of(matrix.data);
    const std::optional<Number> to = transform.dtype ? number_of(*transform.dtype) : from;
    if (!to || (transform.dtype && *to < Number::float16))
      refuse("elements become float16, bfloat16, float32 or float64, not " +
             transform.dtype->to_string());
    if (&matrix != &matrices.front() && !transform.dtype && matrix.data != matrices.front().data)
      refuse("matrices of " + matrices.front().data.to_string() + " and of " +
             matrix.data.to_string() + " need a type of the result");
    const bool narrow = *to == Number::float16 || *to == Number::bfloat16;
    Way way{from, *to, *to, computes};
    if (narrow && (sums || computes)) way.compute = Number::float32;
    way.loads |= from != way.compute;
    ways.push_back(way);
  }
  return ways;
}

// The elements of rows as the batch has them.
class Window::Values {
 public:
  Values(const Window& window, const Transform& transform, bool sums) : transform_(transform) {
    for (const Way& way : ways_of(window.matrices_, transform, sums)) {
      Conversions conversions{way, nullptr, nullptr};
      if (way.loads) conversions.load = row_conversion(way.from, way.compute);
      if (way.stores()) conversions.store = row_conversion(way.compute, way.to);
      ways_.push_back(conversions);
    }
  }

  // log1p of elements that come together is that of their sum: these are to be known.
  bool wants_kept() const { return transform_.log1p; }

  // Row::count elements to `to`, of the type of the result. `kept`: those of the batch, or null
  // where no two of them come together.
  void write(const Row& row, const std::vector<Kept>* kept, std::uint8_t* to) const {
    const Conversions& way = ways_[row.at];
    if (!way.store) return compute(row, way, kept, to);
    const std::size_t size = itemsize_of(way.compute);
    std::uint8_t* const computed =
        sized(scratch().computed, row.count * static_cast<std::int64_t>(size));
    compute(row, way, kept, computed);
    store(way, computed, to, row.count);
  }

  // All but the conversion from what is computed with to the result.
  void compute(const Row& row, const std::vector<Kept>* kept, std::uint8_t* to) const {
    compute(row, ways_[row.at], kept, to);
  }
  void store(const Row& row, const std::uint8_t* from, std::uint8_t* to, std::int64_t count) const {
    store(ways_[row.at], from, to, count);
  }

  Number computed(const Row& row) const { return ways_[row.at].compute; }
  bool stores(const Row& row) const { return ways_[row.at].store != nullptr; }
  std::size_t itemsize() const { return ways_.empty() ? 1 : itemsize_of(ways_.front().to); }

 private:
  struct Conversions : Way {
    ConvertRow load, store;  // null: nothing to do
  };

  void compute(const Row& row,
               const Conversions& way,
               const std::vector<Kept>* kept,
               std::uint8_t* to) const {
    const std::size_t from_size = itemsize_of(way.from), size = itemsize_of(way.compute);
    if (!way.load) {
      if (row.count > 0) std::memcpy(to, row.data, static_cast<std::size_t>(row.count) * size);
      return;
    }
    convert_row(way.load, row.data, from_size, to, size, row.count);
    if (!transform_.total && !transform_.log1p) return;
    if (way.compute == Number::float64)
      scale_row(reinterpret_cast<double*>(to), row.count, kept);
    else
      scale_row(reinterpret_cast<float*>(to), row.count, kept);
  }

  template <typename T>
  void scale_row(T* values, std::int64_t count, const std::vector<Kept>* kept) const {
    const double sum = transform_.total ? loader::sum_of(values, count) : 0;
    if (transform_.log1p && kept) join_columns(values, *kept);
    loader::scale(
        values, count, sum == 0 ? 1.0 : sum / transform_.total.value_or(1), transform_.log1p);
  }

  static void store(const Conversions& way,
                    const std::uint8_t* from,
                    std::uint8_t* to,
                    std::int64_t count) {
    convert_row(way.store, from, itemsize_of(way.compute), to, itemsize_of(way.to), count);
  }

  const Transform& transform_;
  std::vector<Conversions> ways_;  // by matrix
};

Window::Window(std::vector<Matrix> matrices,
               std::vector<Run> runs,
               std::int64_t columns,
               Device device)
    : matrices_(std::move(matrices)),
      runs_(std::move(runs)),
      first_rows_{0},
      columns_(columns),
      device_(device) {
  std::vector<Layout> layouts;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (columns < 0 || columns > kMost) refuse(std::to_string(columns) + " columns");
  for (const Matrix& matrix : matrices_) {
    const std::vector<std::int32_t>& map = matrix.column_map;
    if (!number_of(matrix.data))
      refuse(matrix.name + ": elements are no numbers: " + matrix.data.to_string());
    if (matrix.indices && !(number_of(*matrix.indices) && is_integer(*number_of(*matrix.indices))))
      refuse(matrix.name + ": indices are no integers: " + matrix.indices->to_string());
    if (matrix.columns < 0 || matrix.columns > (map.empty() ? columns : kMost) ||
        (!map.empty() && static_cast<std::int64_t>(map.size()) != matrix.columns))
      refuse(matrix.name + ": " + std::to_string(matrix.columns) + " columns, a map of " +
             std::to_string(map.size()) + " to " + std::to_string(columns));
    Layout layout{*number_of(matrix.data), Number::uint8, false, false};
    if (matrix.indices) layout.indices = *number_of(*matrix.indices);
    std::int32_t last = -1;
    for (const std::int32_t to : map) {
      if (to < -1 || to >= columns) refuse(matrix.name + ": a column to " + std::to_string(to));
      if (to < 0) continue;
      layout.sorts |= to < last;
      last = to;
    }
    if (!device.is_cpu()) layout.joins = has_two_of_one(map, columns);
    layouts.push_back(layout);
  }
  layouts_ = std::make_shared<const std::vector<Layout>>(std::move(layouts));
  for (const Run& run : runs_) {
    if (run.matrix >= matrices_.size() || run.rows < 0 || run.elements < 0)
      refuse("a run of no matrix, or of a negative size");
    first_rows_.push_back(first_rows_.back() + run.rows);
  }
  if (device.is_cpu()) return;
  check_device(device);
  on_device_ = std::make_shared<const OnDevice>(*this);
}

Window::Row Window::row(std::int64_t number) const {
  if (number < 0 || number >= rows())
    refuse("row " + std::to_string(number) + " of " + std::to_string(rows()));
  const auto found = std::upper_bound(first_rows_.begin(), first_rows_.end(), number) - 1;
  const Run& run = runs_[static_cast<std::size_t>(found - first_rows_.begin())];
  const Matrix& matrix = matrices_[run.matrix];
  const std::int64_t at = number - *found;
  const auto itemsize = static_cast<std::int64_t>(matrix.data.itemsize());
  Row row{run.matrix,
          matrix,
          (*layouts_)[run.matrix],
          run.first_row + at,
          nullptr,
          nullptr,
          matrix.columns};
  const auto* data = static_cast<const std::uint8_t*>(run.data);
  if (!matrix.indices) {
    row.data = data + at * matrix.columns * itemsize;
    return row;
  }
  const std::int64_t first = run.indptr[0], begin = run.indptr[at], end = run.indptr[at + 1];
  // Differences of what is in order cannot overflow as unsigned numbers.
  const auto size = static_cast<std::uint64_t>(run.elements);
  if (begin < first || end < begin ||
      static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(first) > size)
    row.corrupt("indptr from " + std::to_string(begin) + " to " + std::to_string(end) +
                ", where elements " + std::to_string(first) + " and the " +
                std::to_string(run.elements) + " from there on were read");
  row.count = end - begin;
  row.data = data + (begin - first) * itemsize;
  row.indices = static_cast<const std::uint8_t*>(run.indices) +
                (begin - first) * static_cast<std::int64_t>(matrix.indices->itemsize());
  return row;
}

std::vector<Window::Row> Window::rows_of(std::span<const std::int64_t> rows) const {
  std::vector<Row> found;
  found.reserve(rows.size());
  for (const std::int64_t number : rows) found.push_back(row(number));
  return found;
}

void Window::count(std::span<const std::int64_t> rows, std::span<std::int64_t> offsets) const {
  if (offsets.size() != rows.size() + 1) refuse("one offset more than rows is wanted");
  if (on_device_) {
    std::vector<Row> counted;
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row found = row(rows[i]);
      offsets[i + 1] = found.count;
      if (found.is_whole()) continue;
      counted.push_back(found);
      at.push_back(i);
    }
    const std::vector<std::uint64_t> counts = on_device_->count(counted);
    for (std::size_t i = 0; i < at.size(); ++i)
      offsets[at[i] + 1] = static_cast<std::int64_t>(counts[i]);
  } else {
    each_row(rows.size(), [&](std::size_t i) {
      const Row found = row(rows[i]);
      offsets[i + 1] =
          found.is_whole() ? found.count : static_cast<std::int64_t>(kept_of(found).size());
    });
  }
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
}

void Window::gather_csr(std::span<const std::int64_t> rows,
                        std::span<const std::int64_t> offsets,
                        const Transform& transform,
                        void* data,
                        std::int32_t* indices) const {
  if (offsets.size() != rows.size() + 1) refuse("one offset more than rows is wanted");
  if (on_device_) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (offsets[i] < 0 || offsets[i + 1] < offsets[i])
        refuse("offsets that count() did not give");
    return on_device_->gather_csr(rows_of(rows), offsets, transform, data, indices);
  }
  const Values values(*this, transform, false);
  const std::size_t itemsize = values.itemsize();
  each_row(rows.size(), [&](std::size_t i) {
    const Row found = row(rows[i]);
    const std::int64_t begin = offsets[i], room = offsets[i + 1] - begin;
    auto* const to = static_cast<std::uint8_t*>(data) + begin * static_cast<std::int64_t>(itemsize);
    const auto check = [&](std::size_t count) {
      if (static_cast<std::int64_t>(count) != room) refuse("offsets that count() did not give");
    };
    if (found.is_whole()) {
      check(static_cast<std::size_t>(found.count));
      read_columns(found, indices + begin);
      values.write(
          found, values.wants_kept() ? all_unless_ascending(indices + begin, room) : nullptr, to);
      return;
    }
    const std::vector<Kept>& kept = kept_of(found);
    check(kept.size());
    std::uint8_t* const all =
        sized(scratch().values, found.count * static_cast<std::int64_t>(itemsize));
    values.write(found, &kept, all);
    for (std::size_t k = 0; k < kept.size(); ++k)
      indices[begin + static_cast<std::int64_t>(k)] = kept[k].column;
    const auto take = [&](auto zero) {
      using T = decltype(zero);
      for (std::size_t k = 0; k < kept.size(); ++k)
        reinterpret_cast<T*>(to)[k] = reinterpret_cast<const T*>(all)[kept[k].position];
    };
    itemsize == 8   ? take(std::uint64_t{})
    : itemsize == 4 ? take(std::uint32_t{})
    : itemsize == 2 ? take(std::uint16_t{})
                    : take(std::uint8_t{});
  });
}

void Window::gather_dense(std::span<const std::int64_t> rows,
                          const Transform& transform,
                          void* data) const {
  if (on_device_) return on_device_->gather_dense(rows_of(rows), transform, data);
  const Values values(*this, transform, true);
  const std::size_t itemsize = values.itemsize();
  each_row(rows.size(), [&](std::size_t i) {
    const Row found = row(rows[i]);
    auto* const to =
        static_cast<std::uint8_t*>(data) + i * static_cast<std::size_t>(columns_) * itemsize;
    const std::vector<std::int32_t>& map = found.matrix.column_map;
    if (found.indices == nullptr && map.empty()) {
      values.write(found, nullptr, to);
      if (found.count < columns_)
        std::memset(to + static_cast<std::size_t>(found.count) * itemsize,
                    0,
                    static_cast<std::size_t>(columns_ - found.count) * itemsize);
      return;
    }
    const auto width = static_cast<std::int64_t>(itemsize_of(values.computed(found)));
    std::uint8_t* const all = sized(scratch().values, found.count * width);
    const std::vector<Kept>& kept = kept_of(found);
    values.compute(found, &kept, all);
    std::uint8_t* const sums =
        values.stores(found) ? sized(scratch().computed, columns_ * width) : to;
    std::memset(sums, 0, static_cast<std::size_t>(columns_ * width));
    with_type(values.computed(found), [&](auto zero) {
      using T = decltype(zero);
      const auto* from = reinterpret_cast<const T*>(all);
      auto* const sum = reinterpret_cast<T*>(sums);
      for (const auto& [column, position] : kept) {
        if constexpr (std::is_same_v<T, Half>)
          sum[column] = from[position];
        else if constexpr (std::is_integral_v<T>)
          sum[column] = found.layout.data == Number::boolean
                            ? static_cast<T>((sum[column] | from[position]) != 0)
                            : static_cast<T>(static_cast<std::uint64_t>(sum[column]) +
                                             static_cast<std::uint64_t>(from[position]));
        else
          sum[column] += from[position];
      }
    });
    if (values.stores(found)) values.store(found, sums, to, columns_);
  });
}

}  // namespace headrace::cells
