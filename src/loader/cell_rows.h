#pragma once

// What a Window is made of: shared by its gathers on the host and on devices.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/cells.h"
#include "kernels/kernels.h"

namespace headrace::cells {

[[noreturn]] void refuse(const std::string& what);

struct Window::Layout {
  Number data, indices;
  bool sorts;  // the map changes the order of columns
  bool joins;  // the map has two columns at one place
};

// What one row of the window is in memory.
struct Window::Row {
  std::size_t at;  // of the matrix in the window
  const Matrix& matrix;
  const Layout& layout;
  std::int64_t number;  // in the matrix
  const std::uint8_t* data;
  const std::uint8_t* indices;  // null: dense
  std::int64_t count;           // elements of data

  // All elements are taken, where they are.
  bool is_whole() const { return matrix.indices && matrix.column_map.empty(); }
  [[noreturn]] void corrupt(const std::string& what) const;
  [[noreturn]] void column_outside() const;
};

// The types that elements of a matrix go through.
struct Way {
  Number from, compute, to;
  bool loads;  // from is converted to compute
  bool stores() const { return compute != to; }
};

// Of each matrix; `sums`: elements may come together, for which 16 bits are too few.
std::vector<Way> ways_of(std::span<const Matrix> matrices, const Transform& transform, bool sums);

// The same window on a device. Rows are checked by the host before they are given here.
class Window::OnDevice {
 public:
  explicit OnDevice(const Window& window);

  // Elements that the batch takes of each row.
  std::vector<std::uint64_t> count(std::span<const Row> rows) const;
  void gather_csr(std::span<const Row> rows,
                  std::span<const std::int64_t> offsets,
                  const Transform& transform,
                  void* data,
                  std::int32_t* indices) const;
  void gather_dense(std::span<const Row> rows, const Transform& transform, void* data) const;

 private:
  class Call;

  Device device_;
  std::vector<Matrix> matrices_;  // without their maps
  std::int64_t columns_;
  std::vector<RowMatrix> described_;
  std::shared_ptr<void> maps_;  // in device memory, one after the other
};

}  // namespace headrace::cells
