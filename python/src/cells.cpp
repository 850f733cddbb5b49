// Windows of rows of cells, and batches gathered from them: what headrace.loader's CellLoader does
// without the GIL. Memory comes as bytes, whose types are told beside it.

#include <headrace/cells.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "buffer_bytes.h"
#include "common.h"
#include "device_array.h"
#include "dtype.h"
#include "errors.h"

namespace headrace::python {

namespace {

// Writable contiguous bytes, held for as long as this lives.
class WritableBytes {
 public:
  explicit WritableBytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_WRITABLE) != 0) throw nb::python_error();
  }
  ~WritableBytes() { PyBuffer_Release(&view_); }
  WritableBytes(const WritableBytes&) = delete;
  WritableBytes& operator=(const WritableBytes&) = delete;

  void* data() const { return view_.buf; }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

// Memory of a window or a batch: on the host that of an object with a buffer, on a device that of a
// DeviceArray there. Held for as long as this lives.
class Memory {
 public:
  Memory(nb::handle object, const Device& device, bool writable) {
    if (!device.is_cpu()) {
      if (!nb::isinstance<PyDeviceArray>(object))
        raise(PyExc_TypeError, "memory of a device: expected a DeviceArray");
      const auto& array = nb::cast<const PyDeviceArray&>(object);
      if (array.view.device != device || !array.view.is_c_contiguous())
        raise(PyExc_ValueError,
              "memory: expected contiguous memory of " + device.to_string() + ", got that of " +
                  array.view.device.to_string());
      wait_until_ready(*array.ready);
      held_ = array.owner;
      data_ = array.view.data;
      size_ = array.view.size() * array.view.dtype.itemsize();
    } else if (writable) {
      written_.emplace(object);
      data_ = written_->data();
      size_ = written_->size();
    } else {
      read_.emplace(object);
      data_ = const_cast<std::byte*>(read_->bytes().data());
      size_ = read_->bytes().size();
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::optional<BufferBytes> read_;
  std::optional<WritableBytes> written_;
  std::shared_ptr<void> held_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// At least `count` elements, where they may lie.
template <typename Bytes>
void check_elements(const void* data,
                    const Bytes& bytes,
                    std::int64_t count,
                    std::size_t itemsize,
                    const char* what) {
  if (count < 0 || static_cast<std::uint64_t>(count) > bytes.size() / itemsize)
    raise(PyExc_ValueError,
          std::string(what) + ": expected " + std::to_string(count) + " elements of " +
              std::to_string(itemsize) + " bytes, got " + std::to_string(bytes.size()) + " bytes");
  if (reinterpret_cast<std::uintptr_t>(data) % itemsize != 0)
    raise(PyExc_ValueError, std::string(what) + ": elements are not aligned");
}

std::span<const std::int64_t> int64s(const BufferBytes& buffer, const char* what) {
  const auto bytes = buffer.bytes();
  const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(std::int64_t));
  check_elements(bytes.data(), bytes, count, sizeof(std::int64_t), what);
  return {reinterpret_cast<const std::int64_t*>(bytes.data()), static_cast<std::size_t>(count)};
}

cells::Transform transform_from(nb::handle from) {
  cells::Transform transform;
  transform.total = nb::cast<std::optional<double>>(nb::object(from[0]));
  transform.log1p = nb::cast<bool>(nb::object(from[1]));
  const nb::object dtype = from[2];
  if (!dtype.is_none()) transform.dtype = dtype_from_python(dtype);
  return transform;
}

// headrace._core.CellWindow
class PyCellWindow {
 public:
  // matrices: (name, columns, data type, type of indices or None, column map or None);
  // runs: (matrix, first row, rows, data, indices or None, indptr or None).
  // On a device data and indices are DeviceArrays. `keep` is held for as long as the window.
  PyCellWindow(nb::handle matrices,
               nb::handle runs,
               std::int64_t columns,
               nb::handle device,
               nb::object keep)
      : columns_(columns), device_(device_from_python(device)), keep_(std::move(keep)) {
    std::vector<cells::Matrix> described;
    for (nb::handle item : matrices) described.push_back(matrix_from(item));
    std::vector<cells::Run> in_memory;
    for (nb::handle item : runs) in_memory.push_back(run_from(item, described));
    nb::gil_scoped_release release;
    window_.emplace(std::move(described), std::move(in_memory), columns, device_);
  }

  PyCellWindow(const PyCellWindow&) = delete;
  PyCellWindow& operator=(const PyCellWindow&) = delete;

  std::int64_t rows() const { return window_->rows(); }

  void count(nb::handle rows, nb::handle offsets) const {
    const BufferBytes row_bytes(rows);
    const WritableBytes out(offsets);
    const auto numbers = int64s(row_bytes, "rows");
    const auto count = static_cast<std::int64_t>(numbers.size()) + 1;
    check_elements(out.data(), out, count, sizeof(std::int64_t), "offsets");
    nb::gil_scoped_release release;
    window_->count(numbers,
                   {static_cast<std::int64_t*>(out.data()), static_cast<std::size_t>(count)});
  }

  void gather_csr(nb::handle rows,
                  nb::handle offsets,
                  nb::handle transform,
                  nb::handle data,
                  nb::handle indices,
                  std::size_t itemsize) const {
    const BufferBytes row_bytes(rows), offset_bytes(offsets);
    const Memory data_out(data, device_, true), index_out(indices, device_, true);
    const auto numbers = int64s(row_bytes, "rows"), starts = int64s(offset_bytes, "offsets");
    if (starts.empty() || starts.front() < 0)
      raise(PyExc_ValueError, "offsets: expected one more than rows, from 0 on");
    for (std::size_t i = 1; i < starts.size(); ++i)
      if (starts[i] < starts[i - 1]) raise(PyExc_ValueError, "offsets: they fall");
    check_itemsize(itemsize);
    check_elements(data_out.data(), data_out, starts.back(), itemsize, "data");
    check_elements(index_out.data(), index_out, starts.back(), sizeof(std::int32_t), "indices");
    const cells::Transform how = transform_from(transform);
    check_result(how, itemsize);
    nb::gil_scoped_release release;
    window_->gather_csr(
        numbers, starts, how, data_out.data(), static_cast<std::int32_t*>(index_out.data()));
  }

  void gather_dense(nb::handle rows,
                    nb::handle transform,
                    nb::handle data,
                    std::size_t itemsize) const {
    const BufferBytes row_bytes(rows);
    const Memory out(data, device_, true);
    const auto numbers = int64s(row_bytes, "rows");
    check_itemsize(itemsize);
    std::int64_t elements = 0;
    if (__builtin_mul_overflow(static_cast<std::int64_t>(numbers.size()), columns_, &elements))
      raise(PyExc_ValueError, "data: too many elements");
    check_elements(out.data(), out, elements, itemsize, "data");
    const cells::Transform how = transform_from(transform);
    check_result(how, itemsize);
    nb::gil_scoped_release release;
    window_->gather_dense(numbers, how, out.data());
  }

 private:
  static cells::Matrix matrix_from(nb::handle item) {
    cells::Matrix matrix;
    matrix.name = nb::cast<std::string>(nb::object(item[0]));
    matrix.columns = nb::cast<std::int64_t>(nb::object(item[1]));
    matrix.data = dtype_from_python(nb::object(item[2]));
    const nb::object indices = item[3], map = item[4];
    if (!indices.is_none()) matrix.indices = dtype_from_python(indices);
    if (!map.is_none()) {
      const BufferBytes buffer(map);
      const auto bytes = buffer.bytes();
      const std::size_t count = bytes.size() / sizeof(std::int32_t);
      check_elements(bytes.data(),
                     bytes,
                     static_cast<std::int64_t>(count),
                     sizeof(std::int32_t),
                     "column map");
      const auto* first = reinterpret_cast<const std::int32_t*>(bytes.data());
      matrix.column_map.assign(first, first + count);
      if (count == 0 && matrix.columns != 0) raise(PyExc_ValueError, "column map: it is empty");
    }
    return matrix;
  }

  cells::Run run_from(nb::handle item, const std::vector<cells::Matrix>& matrices) {
    cells::Run run;
    run.matrix = nb::cast<std::size_t>(nb::object(item[0]));
    run.first_row = nb::cast<std::int64_t>(nb::object(item[1]));
    run.rows = nb::cast<std::int64_t>(nb::object(item[2]));
    if (run.matrix >= matrices.size()) raise(PyExc_ValueError, "runs: a run of no matrix");
    const cells::Matrix& matrix = matrices[run.matrix];
    const Memory& data = hold(nb::object(item[3]));
    run.data = data.data();
    if (!matrix.indices) {
      std::int64_t elements = 0;
      if (__builtin_mul_overflow(run.rows, matrix.columns, &elements))
        raise(PyExc_ValueError, "runs: too many elements");
      check_elements(data.data(), data, elements, matrix.data.itemsize(), "data");
      return run;
    }
    const Memory &indices = hold(nb::object(item[4])),
                 &indptr = hold(nb::object(item[5]), Device::cpu());
    const std::size_t width = matrix.data.itemsize(), index_width = matrix.indices->itemsize();
    run.indices = indices.data();
    run.elements = static_cast<std::int64_t>(indices.size() / index_width);
    check_elements(data.data(), data, run.elements, width, "data");
    check_elements(indices.data(), indices, run.elements, index_width, "indices");
    if (run.rows < 0 || run.rows == std::numeric_limits<std::int64_t>::max())
      raise(PyExc_ValueError, "runs: a number of rows that cannot be");
    check_elements(indptr.data(), indptr, run.rows + 1, sizeof(std::int64_t), "indptr");
    run.indptr = static_cast<const std::int64_t*>(indptr.data());
    return run;
  }

  const Memory& hold(nb::handle object) { return hold(object, device_); }
  const Memory& hold(nb::handle object, const Device& device) {
    return held_.emplace_back(object, device, false);
  }

  static void check_itemsize(std::size_t itemsize) {
    if (itemsize != 1 && itemsize != 2 && itemsize != 4 && itemsize != 8)
      raise(PyExc_ValueError, "itemsize: " + std::to_string(itemsize));
  }
  // The size that Python allocated by, against the one that is written.
  void check_result(const cells::Transform& transform, std::size_t itemsize) const {
    const std::size_t written =
        transform.dtype ? transform.dtype->itemsize() : window_->stored_itemsize();
    if (written != itemsize)
      raise(PyExc_ValueError,
            "itemsize: elements of " + std::to_string(written) + " bytes, not " +
                std::to_string(itemsize));
  }

  std::int64_t columns_;
  Device device_;
  nb::object keep_;
  std::deque<Memory> held_;
  std::optional<cells::Window> window_;
};

}  // namespace

void bind_cells(nb::module_& m) {
  nb::class_<PyCellWindow>(m, "CellWindow")
      .def(nb::init<nb::handle, nb::handle, std::int64_t, nb::handle, nb::object>(),
           nb::arg("matrices"),
           nb::arg("runs"),
           nb::arg("columns"),
           nb::arg("device") = "cpu",
           nb::arg("keep") = nb::none())
      .def_prop_ro("rows", &PyCellWindow::rows)
      .def("count", &PyCellWindow::count, nb::arg("rows"), nb::arg("offsets"))
      .def("gather_csr",
           &PyCellWindow::gather_csr,
           nb::arg("rows"),
           nb::arg("offsets"),
           nb::arg("transform"),
           nb::arg("data"),
           nb::arg("indices"),
           nb::arg("itemsize"))
      .def("gather_dense",
           &PyCellWindow::gather_dense,
           nb::arg("rows"),
           nb::arg("transform"),
           nb::arg("data"),
           nb::arg("itemsize"));
}

}  // namespace headrace::python
