#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>

#include "device_kit.h"
#include "headrace/cells.h"
#include "headrace/error.h"

namespace headrace::test {
namespace {

using cells::Matrix;
using cells::Run;
using cells::Transform;
using cells::Window;

template <typename T>
Tensor on(Device device, const std::vector<T>& values, const DType& dtype) {
  const TensorView view{const_cast<T*>(values.data()),
                        {static_cast<std::int64_t>(values.size())},
                        {},
                        dtype,
                        Device::cpu()};
  return copy(view, device);
}

std::vector<float> floats_of(const Tensor& tensor) {
  const std::vector<std::byte> bytes = bytes_of(tensor);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Two stores of CSR, the second with other columns, in memory of a device.
struct Stores {
  static constexpr std::int64_t kRows = 30, kColumns = 12;
  std::vector<float> data;
  std::vector<std::int32_t> indices;
  std::vector<std::int64_t> indptr{0};
  std::vector<Matrix> matrices{
      {"a", kColumns, DType::float32, DType::int32, {}},
      {"b", kColumns, DType::float32, DType::int32, {11, -1, 9, 8, 7, 6, 5, 4, 3, 2, -1, 0}}};

  explicit Stores(unsigned seed) {
    std::mt19937 random(seed);
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int32_t column = 0; column < kColumns; ++column) {
        if (random() % 3 == 0) continue;
        indices.push_back(column);
        data.push_back(static_cast<float>(1 + random() % 100));
      }
      indptr.push_back(static_cast<std::int64_t>(data.size()));
    }
  }

  // Runs of rows 4 to 20 of the one, 10 to 30 of the other.
  Window window(const float* values, const std::int32_t* columns, Device device) const {
    return Window(matrices,
                  {run(0, 4, 20, values, columns), run(1, 10, 30, values, columns)},
                  kColumns,
                  device);
  }
  Window on_host() const { return window(data.data(), indices.data(), Device::cpu()); }

  Run run(std::size_t matrix,
          std::size_t begin,
          std::size_t end,
          const float* values,
          const std::int32_t* columns) const {
    return {matrix,
            static_cast<std::int64_t>(begin),
            static_cast<std::int64_t>(end - begin),
            values + indptr[begin],
            columns + indptr[begin],
            indptr.data() + begin,
            indptr[end] - indptr[begin]};
  }
};

const std::array<std::int64_t, 6> kRows{35, 0, 20, 20, 15, 16};

TEST(CellWindowDevice, BatchesAreThoseOfTheHost) {
  const Stores stores(1);
  const Transform how{1e4, true, DType::float32};
  std::array<std::int64_t, 7> wanted_offsets{}, offsets{};
  const Window host = stores.on_host();
  host.count(kRows, wanted_offsets);
  const auto count = static_cast<std::size_t>(wanted_offsets.back());
  std::vector<float> wanted(count), wanted_dense(6 * Stores::kColumns);
  std::vector<std::int32_t> wanted_indices(count);
  host.gather_csr(kRows, wanted_offsets, how, wanted.data(), wanted_indices.data());
  host.gather_dense(kRows, how, wanted_dense.data());

  for (const Device device : devices()) {
    const Tensor data = on(device, stores.data, DType::float32),
                 indices = on(device, stores.indices, DType::int32);
    const Window window = stores.window(static_cast<const float*>(data.data()),
                                        static_cast<const std::int32_t*>(indices.data()),
                                        device);
    EXPECT_EQ(window.device(), device);
    window.count(kRows, offsets);
    EXPECT_EQ(offsets, wanted_offsets);
    const Shape shape{static_cast<std::int64_t>(count)};
    const Tensor values = Tensor::empty(shape, DType::float32, device),
                 columns = Tensor::empty(shape, DType::int32, device),
                 dense = Tensor::empty({6, Stores::kColumns}, DType::float32, device);
    window.gather_csr(
        kRows, offsets, how, values.data(), static_cast<std::int32_t*>(columns.data()));
    window.gather_dense(kRows, how, dense.data());
    EXPECT_EQ(floats_of(values), wanted);
    EXPECT_EQ(floats_of(dense), wanted_dense);
    const std::vector<std::byte> found = bytes_of(columns);
    EXPECT_EQ(std::memcmp(found.data(), wanted_indices.data(), found.size()), 0);
  }
}

TEST(CellWindowDevice, ErrorsAreThoseOfTheHost) {
  for (const Device device : devices()) {
    Stores stores(2);
    stores.indices[static_cast<std::size_t>(stores.indptr[12])] = Stores::kColumns;  // row 12
    const Tensor data = on(device, stores.data, DType::float32),
                 indices = on(device, stores.indices, DType::int32),
                 out = Tensor::empty({6, Stores::kColumns}, DType::float32, device);
    const auto made = [&] {
      return stores.window(static_cast<const float*>(data.data()),
                           static_cast<const std::int32_t*>(indices.data()),
                           device);
    };
    const auto dense = [&](const Window& window, std::vector<std::int64_t> rows) {
      window.gather_dense(rows, {}, out.data());
    };
    const Window window = made();
    for (const std::int64_t row : {8, 18}) {  // of the first store, of the second
      const std::string said = error_of([&] { dense(window, {1, row}); }, ErrorCode::corrupt);
      EXPECT_EQ(said,
                error_of(
                    [&] {
                      std::vector<float> result(2 * Stores::kColumns);
                      stores.on_host().gather_dense(
                          std::array<std::int64_t, 2>{1, row}, {}, result.data());
                    },
                    ErrorCode::corrupt));
      EXPECT_NE(said.find(row == 8 ? "a row 12: a column outside of the 12" : "b row 12: a column"),
                std::string::npos)
          << said;
    }
    std::array<std::int64_t, 2> offsets{};
    error_of([&] { window.count(std::array<std::int64_t, 1>{18}, offsets); }, ErrorCode::corrupt);
    window.count(std::array<std::int64_t, 1>{20}, offsets);
    for (const std::int64_t wrong :
         {offsets[1] - 1, offsets[1] + 1, std::int64_t{-1}, std::int64_t{1} << 60})
      error_of(
          [&] {
            window.gather_csr(std::array<std::int64_t, 1>{20},
                              std::array<std::int64_t, 2>{0, wrong},
                              {},
                              out.data(),
                              static_cast<std::int32_t*>(out.data()));
          },
          ErrorCode::invalid_argument);
    error_of([&] { dense(window, {36}); }, ErrorCode::invalid_argument);
    stores.indptr[12] = stores.indptr[13] + 1;
    EXPECT_NE(error_of([&] { dense(made(), {8}); }, ErrorCode::corrupt).find("a row 12: indptr"),
              std::string::npos);
  }
}

TEST(CellWindowDevice, SeveralThreadsMayGather) {
  const Stores stores(3);
  std::vector<float> wanted(6 * Stores::kColumns);
  stores.on_host().gather_dense(kRows, {}, wanted.data());
  for (const Device device : devices()) {
    const Tensor data = on(device, stores.data, DType::float32),
                 indices = on(device, stores.indices, DType::int32);
    const Window window = stores.window(static_cast<const float*>(data.data()),
                                        static_cast<const std::int32_t*>(indices.data()),
                                        device);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int round = 0; round < 5; ++round) {
          const Tensor dense = Tensor::empty({6, Stores::kColumns}, DType::float32, device);
          window.gather_dense(kRows, {}, dense.data());
          EXPECT_EQ(floats_of(dense), wanted);
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace headrace::test
