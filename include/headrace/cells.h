#pragma once

// Batches of rows of matrices of cells by genes, from what was read of them.
//  1. A Window is runs of consecutive rows as a read left them in memory, sparse (CSR) or dense, of
//     one or several matrices. It keeps pointers: the memory is the caller's.
//  2. count() tells where each row of a batch begins among the batch's elements.
//  3. gather_csr() or gather_dense() writes the batch, scaled, converted and with the columns that
//     are wanted.
//
// Rows are numbered through the window, run after run. All that comes from a store (positions and
// columns) is checked where it is used: `corrupt` names the matrix and the row, and nothing outside
// of the given memory is touched. The work is shared among the threads of the library, or done by
// kernels where the runs lie on a device: as read_many() to a device left them there.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/dtype.h"
#include "headrace/tensor.h"

#pragma GCC visibility push(default)
namespace headrace::cells {

struct Matrix {
  std::string name;  // for messages
  std::int64_t columns = 0;
  DType data{};                    // a number
  std::optional<DType> indices{};  // an integer; none: the matrix is dense
  // The column of the batch for each column, -1 for none. Empty: the same.
  std::vector<std::int32_t> column_map{};
};

// Consecutive rows of a matrix.
struct Run {
  std::size_t matrix = 0;      // among those of the window
  std::int64_t first_row = 0;  // in the matrix, for messages
  std::int64_t rows = 0;
  const void* data = nullptr;  // of a dense matrix rows * columns elements; aligned to these
  // Of a sparse matrix: `elements` of data and of indices. Row i has those from
  // indptr[i] - indptr[0] up to indptr[i + 1] - indptr[0].
  const void* indices = nullptr;
  const std::int64_t* indptr = nullptr;  // rows + 1; always in host memory
  std::int64_t elements = 0;
};

// What is done to the elements of a row, in this order.
struct Transform {
  // Elements are divided by (sum of the row / total), a row without a sum by 1. The sum is over all
  // columns of the matrix, whichever of them are wanted.
  std::optional<double> total{};
  // Within 2 units in the last place. Of elements that go to one column it is that of their sum: in
  // CSR the first of them has it, and the others are zero.
  bool log1p = false;
  // float16, bfloat16, float32 or float64; none: that of the matrices, which have one, and nothing
  // is transformed.
  std::optional<DType> dtype{};
};

// On a device `data` and `indices` of the runs, and those of batches, are memory of that device;
// all else is the host's. What the functions write there is done when they return, whatever stream
// it is used on then; before they are called the memory has to hold the runs, and what was given to
// streams has to be done with the batch's. They may be called from several threads at a time. The
// values are those of the host bit for bit, but for the payload of NaNs, and for log1p in float64,
// which there too is within 2 units in the last place.
class Window {
 public:
  // `invalid_argument` for runs and matrices that do not fit together.
  Window(std::vector<Matrix> matrices,
         std::vector<Run> runs,
         std::int64_t columns,
         Device device = Device::cpu());

  std::int64_t rows() const { return first_rows_.back(); }
  const Device& device() const { return device_; }
  // Bytes of an element of the matrices, where they have one type.
  std::size_t stored_itemsize() const {
    return matrices_.empty() ? 1 : matrices_.front().data.itemsize();
  }

  // offsets[i + 1] = offsets[i] + the elements of rows[i] that the batch takes; offsets[0] is
  // given. Of dense matrices those that are not zero.
  void count(std::span<const std::int64_t> rows, std::span<std::int64_t> offsets) const;

  // Row rows[i] goes to the elements from offsets[i] on, as count() said. Where the map of columns
  // changes their order they are sorted, else they are in the order of the store.
  void gather_csr(std::span<const std::int64_t> rows,
                  std::span<const std::int64_t> offsets,
                  const Transform& transform,
                  void* data,
                  std::int32_t* indices) const;

  // A matrix of rows.size() by `columns` in C order. Elements that a sparse row has twice are
  // added.
  void gather_dense(std::span<const std::int64_t> rows,
                    const Transform& transform,
                    void* data) const;

 private:
  struct [[gnu::visibility("hidden")]] Layout;
  struct [[gnu::visibility("hidden")]] Row;
  class [[gnu::visibility("hidden")]] Values;
  class [[gnu::visibility("hidden")]] OnDevice;
  Row row(std::int64_t number) const;
  std::vector<Row> rows_of(std::span<const std::int64_t> rows) const;

  std::vector<Matrix> matrices_;
  std::shared_ptr<const std::vector<Layout>> layouts_;  // of the matrices
  std::vector<Run> runs_;
  std::vector<std::int64_t> first_rows_;  // of each run in the window; and all rows
  std::int64_t columns_;
  Device device_;
  std::shared_ptr<const OnDevice> on_device_;  // null on the host
};

}  // namespace headrace::cells
#pragma GCC visibility pop
