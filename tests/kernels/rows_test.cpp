// Rows gathered by kernels against those that headrace::cells::Window gathers on the host.

#include "kernels/place/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "headrace/cells.h"
#include "headrace/error.h"
#include "kernels/queues.h"
#include "loader/cell_rows.h"
#include "loader/conversions.h"
#include "simt/host_queue.h"

namespace headrace::test {
namespace {

using cells::Transform;

const std::vector<DType> kData{DType::boolean,
                               DType::int8,
                               DType::int16,
                               DType::int32,
                               DType::int64,
                               DType::uint8,
                               DType::uint16,
                               DType::uint32,
                               DType::uint64,
                               DType::float16,
                               DType::float32,
                               DType::float64,
                               DType::bfloat16};
const std::vector<DType> kIndices{DType::int8,
                                  DType::int16,
                                  DType::int32,
                                  DType::int64,
                                  DType::uint8,
                                  DType::uint16,
                                  DType::uint32,
                                  DType::uint64};
constexpr std::size_t kGuard = 64;  // bytes around what is written
constexpr std::uint8_t kUntouched = 0xcd;

void store_integer(std::vector<std::uint8_t>& bytes, std::size_t itemsize, std::uint64_t value) {
  for (std::size_t i = 0; i < itemsize; ++i)
    bytes.push_back(static_cast<std::uint8_t>(value >> 8 * i));
}

// An element that a cell may have, now and then a special one.
std::uint64_t random_element(const DType& dtype, std::mt19937_64& random) {
  const Number number = *loader::number_of(dtype);
  if (number == Number::boolean) return random() % 2;
  if (number < Number::float16) return random() % 7 == 0 ? random() : random() % 100;
  constexpr std::array kSpecial{std::numeric_limits<double>::quiet_NaN(),
                                std::numeric_limits<double>::infinity(),
                                -1.0,
                                -0.0,
                                0.0,
                                1e-40,
                                1e30};
  const double value =
      random() % 13 == 0 ? kSpecial[random() % kSpecial.size()]
                         : static_cast<double>(random() % 1000 + 1) / (1.0 + double(random() % 7));
  std::uint64_t bits = 0;
  loader::row_conversion(Number::float64, number)({reinterpret_cast<const std::uint8_t*>(&value),
                                                   reinterpret_cast<std::uint8_t*>(&bits),
                                                   1,
                                                   8,
                                                   static_cast<std::int64_t>(dtype.itemsize()),
                                                   0,
                                                   1,
                                                   std::numeric_limits<double>::quiet_NaN()});
  return bits;
}

enum class Map { none, subset, permuted, joining };
enum class Order { ascending, any, twice };

// A matrix in memory, all of it one run.
struct Case {
  cells::Matrix matrix{};
  std::int64_t batch_columns = 0;
  std::vector<std::uint8_t> data{}, indices{};
  std::vector<std::int64_t> indptr{0};

  std::int64_t rows() const { return static_cast<std::int64_t>(indptr.size()) - 1; }
  cells::Window window() const {
    const cells::Run run{0,
                         0,
                         rows(),
                         data.data(),
                         matrix.indices ? indices.data() : nullptr,
                         matrix.indices ? indptr.data() : nullptr,
                         matrix.indices ? indptr.back() : 0};
    return cells::Window({matrix}, {run}, batch_columns);
  }
};

struct Wanted {
  DType data = DType::float32;
  std::optional<DType> indices = DType::int32;
  Map map = Map::none;
  Order order = Order::ascending;
  std::int64_t rows = 7, columns = 40;
};

Case random_case(const Wanted& wanted, std::mt19937_64& random) {
  Case c;
  c.matrix = {"store", wanted.columns, wanted.data, wanted.indices, {}};
  c.batch_columns =
      wanted.columns + (wanted.map == Map::none ? static_cast<std::int64_t>(random() % 3) : 0);
  const auto columns = static_cast<std::size_t>(wanted.columns);
  if (wanted.map != Map::none) {
    std::vector<std::int32_t>& map = c.matrix.column_map;
    map.resize(columns);
    std::int32_t next = 0;
    for (auto& to : map) to = random() % 3 == 0 ? -1 : next++;
    if (wanted.map == Map::permuted) std::shuffle(map.begin(), map.end(), random);
    if (wanted.map == Map::joining)
      for (auto& to : map) to /= 3;
    c.batch_columns = next + 1;
  }
  for (std::int64_t row = 0; row < wanted.rows; ++row) {
    std::vector<std::uint64_t> taken;
    if (!wanted.indices) {
      for (std::size_t i = 0; i < columns; ++i)
        store_integer(c.data,
                      wanted.data.itemsize(),
                      random() % 3 == 0 ? random_element(wanted.data, random) : 0);
      continue;
    }
    if (row % 5 != 3)  // some rows are empty
      for (std::size_t i = 0; i < columns; ++i)
        for (int k = wanted.order == Order::twice ? 4 : 1; k > 0; --k)
          if (random() % 2 == 0) taken.push_back(i);
    if (wanted.order != Order::ascending) std::shuffle(taken.begin(), taken.end(), random);
    for (const std::uint64_t column : taken) {
      store_integer(c.indices, wanted.indices->itemsize(), column);
      store_integer(c.data, wanted.data.itemsize(), random_element(wanted.data, random));
    }
    c.indptr.push_back(c.indptr.back() + static_cast<std::int64_t>(taken.size()));
  }
  if (!wanted.indices) c.indptr.resize(static_cast<std::size_t>(wanted.rows) + 1);
  return c;
}

struct Batch {
  std::vector<std::uint8_t> data;
  std::vector<std::int32_t> indices;
  std::vector<std::int64_t> offsets;
};

std::vector<std::int64_t> random_rows(const Case& c, std::mt19937_64& random) {
  std::vector<std::int64_t> rows(5);
  for (auto& row : rows)
    row = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(c.rows()));
  return rows;
}

DType result_of(const Case& c, const Transform& transform) {
  return transform.dtype.value_or(c.matrix.data);
}

Batch on_host(const Case& c,
              std::span<const std::int64_t> rows,
              const Transform& transform,
              bool dense) {
  const cells::Window window = c.window();
  Batch batch;
  batch.offsets.resize(rows.size() + 1);
  const std::size_t itemsize = result_of(c, transform).itemsize();
  if (dense) {
    batch.data.resize(rows.size() * static_cast<std::size_t>(c.batch_columns) * itemsize);
    window.gather_dense(rows, transform, batch.data.data());
    return batch;
  }
  window.count(rows, batch.offsets);
  const auto count = static_cast<std::size_t>(batch.offsets.back());
  batch.data.resize(count * itemsize);
  batch.indices.resize(count);
  window.gather_csr(rows, batch.offsets, transform, batch.data.data(), batch.indices.data());
  return batch;
}

// What the kernels are given of a case, in memory of the queue's device.
class OnPlace {
 public:
  OnPlace(const Place& place, const Case& c, std::span<const std::int64_t> rows, std::uint64_t seed)
      : kernels_(*place.kernels),
        queue_(place.make_queue(seed)),
        data_(Scratch<std::uint8_t>::of(*queue_, c.data.data(), c.data.size())),
        indices_(Scratch<std::uint8_t>::of(*queue_, c.indices.data(), c.indices.size())),
        map_(Scratch<std::int32_t>::of(
            *queue_, c.matrix.column_map.data(), c.matrix.column_map.size())),
        faults_(Scratch<RowFaults>::of(*queue_, &kNoFaults, 1)),
        case_(c) {
    matrix_.data = *loader::number_of(c.matrix.data);
    matrix_.sparse = c.matrix.indices.has_value();
    if (matrix_.sparse) matrix_.indices = *loader::number_of(*c.matrix.indices);
    matrix_.columns = static_cast<std::uint64_t>(c.matrix.columns);
    std::set<std::int32_t> seen;
    std::int32_t last = -1;
    for (const std::int32_t to : c.matrix.column_map) {
      if (to < 0) continue;
      matrix_.sorts |= to < last;
      matrix_.joins |= !seen.insert(to).second;
      last = to;
    }
    if (!c.matrix.column_map.empty()) matrix_.map = map_.data();
    for (const std::int64_t row : rows) {
      BatchRow& own = rows_.emplace_back();
      const auto at = static_cast<std::uint64_t>(
          matrix_.sparse ? c.indptr[static_cast<std::size_t>(row)] : row * c.matrix.columns);
      own.data = data_.data() + at * c.matrix.data.itemsize();
      own.count = static_cast<std::uint64_t>(c.matrix.columns);
      if (!matrix_.sparse) continue;
      own.indices = indices_.data() + at * c.matrix.indices->itemsize();
      own.count = static_cast<std::uint64_t>(c.indptr[static_cast<std::size_t>(row) + 1]) - at;
    }
  }

  std::vector<std::uint64_t> count() {
    const Scratch<std::uint64_t> counts(*queue_, rows_.size());
    kernels_.count_rows(*queue_, batch({}, false), counts.data());
    std::vector<std::uint64_t> found(rows_.size());
    queue_->download(found.data(), counts.data(), found.size() * sizeof(std::uint64_t));
    read_faults();
    return found;
  }

  Batch csr(std::span<const std::int64_t> offsets, const Transform& transform) {
    RowBatch batch = this->batch(transform, false);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].first = static_cast<std::uint64_t>(offsets[i]);
      rows_[i].wanted = static_cast<std::uint64_t>(offsets[i + 1] - offsets[i]);
    }
    const auto count = static_cast<std::size_t>(offsets.back());
    const std::size_t nbytes = count * result_of(case_, transform).itemsize();
    Guarded data(*queue_, nbytes), indices(*queue_, count * sizeof(std::int32_t));
    batch.data = data.data();
    batch.indices = reinterpret_cast<std::int32_t*>(indices.data());
    kernels_.gather_rows(*queue_, batch);
    Batch found;
    found.data = data.download();
    const auto columns = indices.download();
    found.indices.resize(count);
    if (count) std::memcpy(found.indices.data(), columns.data(), columns.size());
    read_faults();
    return found;
  }

  Batch dense(const Transform& transform) {
    RowBatch batch = this->batch(transform, true);
    const auto columns = static_cast<std::uint64_t>(case_.batch_columns);
    for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i].first = i * columns;
    batch.columns = columns;
    Guarded data(*queue_, rows_.size() * columns * result_of(case_, transform).itemsize());
    batch.data = data.data();
    const Scratch<std::uint32_t> again(*queue_, rows_.size());
    kernels_.gather_rows_dense(*queue_, batch, again.data());
    read_faults();
    kernels_.sum_rows_dense(*queue_, batch, again.data(), faults.again);
    Batch found;
    found.data = data.download();
    return found;
  }

  RowFaults faults{};

 private:
  static constexpr RowFaults kNoFaults{~0u, ~0u, 0};

  // Memory between bytes that nobody may touch.
  class Guarded {
   public:
    Guarded(Queue& queue, std::size_t nbytes) : queue_(queue), memory_(queue, nbytes + 2 * kGuard) {
      queue.fill(memory_.data(), kUntouched, memory_.size());
    }
    std::uint8_t* data() const { return memory_.data() + kGuard; }
    std::vector<std::uint8_t> download() const {
      std::vector<std::uint8_t> all(memory_.size());
      queue_.download(all.data(), memory_.data(), all.size());
      queue_.synchronize();
      for (std::size_t i = 0; i < kGuard; ++i) {
        EXPECT_EQ(all[i], kUntouched);
        EXPECT_EQ(all[all.size() - 1 - i], kUntouched);
      }
      return {all.begin() + kGuard, all.end() - kGuard};
    }

   private:
    Queue& queue_;
    Scratch<std::uint8_t> memory_;
  };

  RowBatch batch(const Transform& transform, bool sums) {
    const cells::Way way = cells::ways_of({&case_.matrix, 1}, transform, sums).front();
    matrix_.compute = way.compute;
    matrix_.to = way.to;
    matrix_.loads = way.loads;
    RowBatch batch;
    batch.matrices = {&matrix_, 1};
    batch.rows = rows_;
    batch.scale = {transform.total || transform.log1p,
                   transform.total.has_value(),
                   transform.log1p,
                   transform.total.value_or(1)};
    batch.faults = faults_.data();
    return batch;
  }
  void read_faults() {
    queue_->download(&faults, faults_.data(), sizeof(faults));
    queue_->synchronize();
  }

  const Kernels& kernels_;
  std::unique_ptr<Queue> queue_;
  Scratch<std::uint8_t> data_, indices_;
  Scratch<std::int32_t> map_;
  Scratch<RowFaults> faults_;
  const Case& case_;
  RowMatrix matrix_;
  std::vector<BatchRow> rows_;
};

bool is_nan(const std::uint8_t* p, Number number) {
  std::uint64_t bits = 0;
  const bool two = number == Number::float16 || number == Number::bfloat16;
  std::memcpy(&bits, p, two ? 2 : number == Number::float32 ? 4 : 8);
  if (number == Number::float16) return (bits & 0x7fff) > 0x7c00;
  if (number == Number::bfloat16) return (bits & 0x7fff) > 0x7f80;
  if (number == Number::float32)
    return std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  return number == Number::float64 && std::isnan(std::bit_cast<double>(bits));
}

// Bit for bit, but for the payload of NaNs; logarithms of float64 within 2 units.
void expect_equal(const Batch& found, const Batch& wanted, const DType& dtype, bool logarithms) {
  ASSERT_EQ(found.indices, wanted.indices);
  ASSERT_EQ(found.data.size(), wanted.data.size());
  const std::size_t size = dtype.itemsize();
  const Number number = *loader::number_of(dtype);
  for (std::size_t i = 0; i < wanted.data.size(); i += size) {
    const std::uint8_t *a = &found.data[i], *b = &wanted.data[i];
    if (std::memcmp(a, b, size) == 0 || (is_nan(a, number) && is_nan(b, number))) continue;
    if (logarithms && number == Number::float64) {
      std::int64_t x = 0, y = 0;
      std::memcpy(&x, a, 8);
      std::memcpy(&y, b, 8);
      if (std::abs(x - y) <= 2) continue;
    }
    FAIL() << "element " << i / size << " of " << dtype.to_string();
  }
}

void check(const Wanted& wanted, const Transform& transform, std::mt19937_64& random) {
  const Case c = random_case(wanted, random);
  const auto rows = random_rows(c, random);
  const DType result = result_of(c, transform);
  for (const Place& place : places()) {
    OnPlace kernel(place, c, rows, random());
    const Batch csr = on_host(c, rows, transform, false);
    const auto counts = kernel.count();
    for (std::size_t i = 0; i < rows.size(); ++i)
      ASSERT_EQ(counts[i], static_cast<std::uint64_t>(csr.offsets[i + 1] - csr.offsets[i]));
    expect_equal(kernel.csr(csr.offsets, transform), csr, result, transform.log1p);
    expect_equal(
        kernel.dense(transform), on_host(c, rows, transform, true), result, transform.log1p);
    EXPECT_EQ(kernel.faults.corrupt, ~0u);
    EXPECT_EQ(kernel.faults.unequal, ~0u);
    if (::testing::Test::HasFailure()) return;
  }
}

std::vector<Transform> transforms() {
  std::vector<Transform> all{{}};
  for (const DType& dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    all.push_back({{}, false, dtype});
    all.push_back({1e4, false, dtype});
    all.push_back({100.0, true, dtype});
  }
  return all;
}

TEST(Rows, AreThoseOfTheHostForAllTypes) {
  std::mt19937_64 random(1);
  for (const DType& data : kData)
    for (const Transform& transform : transforms()) {
      Wanted wanted{data, kIndices[random() % kIndices.size()]};
      if (random() % 4 == 0) wanted.indices.reset();
      wanted.map = static_cast<Map>(random() % 4);
      wanted.order = static_cast<Order>(random() % 3);
      check(wanted, transform, random);
      ASSERT_FALSE(HasFailure()) << data.to_string();
    }
}

TEST(Rows, AreThoseOfTheHostForAllMapsAndOrders) {
  std::mt19937_64 random(2);
  const std::array<Transform, 3> how{
      {{}, {1e4, true, DType::float32}, {1e4, true, DType::float16}}};
  for (const Map map : {Map::none, Map::subset, Map::permuted, Map::joining})
    for (const Order order : {Order::ascending, Order::any, Order::twice})
      for (const bool sparse : {true, false})
        for (const Transform& transform : how)
          for (const std::int64_t columns : {1, 31, 120}) {
            Wanted wanted{DType::float32, DType::uint8, map, order, 6, columns};
            if (!sparse) wanted.indices.reset();
            check(wanted, transform, random);
            ASSERT_FALSE(HasFailure());
          }
}

TEST(Rows, LongOnesAreSummedAndSortedToo) {
  std::mt19937_64 random(3);
  for (const Map map : {Map::none, Map::permuted}) {
    Wanted wanted{DType::int32, DType::int32, map, Order::any, 2, 6000};
    check(wanted, {1e4, true, DType::float32}, random);
    wanted.indices.reset();
    check(wanted, {1e4, true, DType::float64}, random);
  }
}

TEST(Rows, ColumnsOutsideOfTheMatrixAreFaults) {
  std::mt19937_64 random(4);
  for (const Map map : {Map::none, Map::permuted})
    for (const DType& type : kIndices) {
      Wanted wanted{DType::float32, type, map, Order::any, 4, 100};
      Case c = random_case(wanted, random);
      const std::array<std::int64_t, 3> rows{2, 1, 0};
      const Batch good = on_host(c, rows, {}, false);
      // The last element of row 1.
      const std::size_t at = static_cast<std::size_t>(c.indptr[2] - 1) * type.itemsize();
      for (const std::int64_t bad : {std::int64_t{100}, std::int64_t{-1}, std::int64_t{-100}}) {
        std::memcpy(&c.indices[at], &bad, type.itemsize());
        EXPECT_THROW(on_host(c, rows, {}, true), Error) << type.to_string() << " " << bad;
        for (const Place& place : places()) {
          OnPlace counted(place, c, rows, random()), sparse(place, c, rows, random()),
              dense(place, c, rows, random());
          counted.count();
          EXPECT_EQ(counted.faults.corrupt, 1u);
          sparse.csr(good.offsets, {});
          EXPECT_EQ(sparse.faults.corrupt, 1u);
          dense.dense({});
          EXPECT_EQ(dense.faults.corrupt, 1u);
        }
      }
    }
}

TEST(Rows, NothingIsWrittenBeyondWhatIsWanted) {
  std::mt19937_64 random(5);
  for (const Map map : {Map::subset, Map::permuted}) {
    const Case c = random_case({DType::float32, DType::int32, map, Order::any, 4, 100}, random);
    const std::array<std::int64_t, 1> rows{1};
    const std::int64_t count = on_host(c, rows, {}, false).offsets[1];
    for (const std::int64_t wanted : {count - 3, std::int64_t{0}, count + 2})
      for (const Place& place : places()) {
        OnPlace kernel(place, c, rows, random());
        kernel.csr(std::array<std::int64_t, 2>{0, wanted}, {});
        EXPECT_EQ(kernel.faults.unequal, 0u);
      }
  }
}

TEST(Rows, ABatchMayBeEmpty) {
  std::mt19937_64 random(6);
  const Case c = random_case({}, random);
  for (const Place& place : places()) {
    OnPlace kernel(place, c, {}, 1);
    EXPECT_TRUE(kernel.count().empty());
    EXPECT_TRUE(kernel.csr(std::array<std::int64_t, 1>{0}, {}).data.empty());
    EXPECT_TRUE(kernel.dense({}).data.empty());
  }
}

}  // namespace
}  // namespace headrace::test
