#include "device_array.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "dlpack.h"
#include "docs.h"
#include "dtype.h"
#include "errors.h"
#include "future.h"
#include "tensor.h"

namespace headrace::python {

namespace {

// Basic indexing, of one dimension after the other.
class Slicer {
 public:
  explicit Slicer(const TensorView& view) : view_(view), strides_(view.strides_or_c()) {
    result_ = {view.data, {}, {}, view.dtype, view.device};
  }

  void index(std::int64_t at) {
    const std::int64_t extent = next_extent();
    if (at < -extent || at >= extent) {
      raise(PyExc_IndexError,
            "index " + std::to_string(at) + " is out of bounds for axis " + std::to_string(axis_) +
                " with size " + std::to_string(extent));
    }
    move(at < 0 ? at + extent : at);
    ++axis_;
  }

  void slice(nb::handle item) {
    Py_ssize_t start = 0, stop = 0, step = 0;
    if (PySlice_Unpack(item.ptr(), &start, &stop, &step) < 0) throw nb::python_error();
    const Py_ssize_t count = PySlice_AdjustIndices(next_extent(), &start, &stop, step);
    if (count > 0) move(start);
    keep(count, strides_[axis_] * step);
    ++axis_;
  }

  void new_axis() { keep(1, 0); }

  // All but the last `left` dimensions as they are.
  void skip_to(std::size_t left) {
    for (; axis_ + left < view_.shape.size(); ++axis_) keep(view_.shape[axis_], strides_[axis_]);
  }

  TensorView finish() {
    skip_to(0);
    return std::move(result_);
  }

 private:
  std::int64_t next_extent() const {
    if (axis_ >= view_.shape.size()) {
      raise(
          PyExc_IndexError,
          "too many indices for an array of " + std::to_string(view_.shape.size()) + " dimensions");
    }
    return view_.shape[axis_];
  }
  void move(std::int64_t elements) {
    result_.data = static_cast<std::byte*>(result_.data) + elements * strides_[axis_];
  }
  void keep(std::int64_t count, std::int64_t stride) {
    result_.shape.push_back(count);
    result_.strides.push_back(stride);
  }

  const TensorView& view_;
  const Shape strides_;
  TensorView result_;
  std::size_t axis_ = 0;
};

PyDeviceArray getitem(PyDeviceArray& self, nb::handle key) {
  nb::object items = PyTuple_Check(key.ptr()) != 0 ? nb::borrow(key) : nb::make_tuple(key);
  std::size_t left = 0;
  for (nb::handle item : items) left += !item.is_none() && item.ptr() != Py_Ellipsis;
  Slicer slicer(self.view);
  bool ellipsis = false;
  for (nb::handle item : items) {
    if (item.is_none()) {
      slicer.new_axis();
    } else if (item.ptr() == Py_Ellipsis) {
      if (std::exchange(ellipsis, true)) raise(PyExc_IndexError, "an index has a single ellipsis");
      slicer.skip_to(left);
    } else if (PySlice_Check(item.ptr())) {
      slicer.slice(item);
      --left;
    } else if (PyIndex_Check(item.ptr()) && !PyBool_Check(item.ptr())) {
      slicer.index(extent_from_python(item, "index"));
      --left;
    } else {
      raise(PyExc_IndexError,
            "a DeviceArray takes integers, slices, ... and None, not " +
                nb::cast<std::string>(nb::repr(item)));
    }
  }
  return {self.owner, slicer.finish(), self.numpy_dtype, self.ready};
}

nb::object to_numpy(PyDeviceArray& self, nb::handle stream) {
  const Stream order = stream_from_python(stream);
  wait_until_ready(*self.ready);
  Tensor host = [&] {
    nb::gil_scoped_release release;
    return copy(self.view, Device::cpu(), order);
  }();
  return to_ndarray(std::move(host), self.numpy_dtype);
}

// The stream that a consumer wants the elements on; nothing where it takes care of that itself. As
// the array API standard has it, None is CUDA's default stream.
// https://data-apis.org/array-api/latest/API_specification/generated/array_api.array.__dlpack__.html
std::optional<Stream> consumer_stream(const Device& device, nb::handle stream) {
  if (stream.is_none()) return Stream();
  if (device.type != Device::Type::cuda)
    raise(PyExc_BufferError, "__dlpack__: stream must be None for host memory");
  const auto value = nb::cast<long long>(stream);
  if (value < -1 || value == 0) {
    raise(PyExc_BufferError,
          "__dlpack__: stream must be None, -1 or a handle; 1 is CUDA's default stream, got " +
              std::to_string(value));
  }
  if (value == -1) return std::nullopt;
  return Stream::from(reinterpret_cast<void*>(value));
}

nb::object dlpack(PyDeviceArray& self,
                  nb::handle stream,
                  nb::handle max_version,
                  nb::handle dl_device,
                  nb::handle copy_wanted) {
  check_dlpack_type(self.view.dtype);
  const std::optional<Stream> consumer = consumer_stream(self.view.device, stream);
  const auto own = nb::cast<std::pair<int, int>>(dlpack_device_of(self.view.device));
  const auto target = dl_device.is_none() ? own
                                          : argument<std::pair<int, int>>(
                                                dl_device, "dl_device", "a pair such as (1, 0)");
  const bool to_host = target != own;
  if (to_host && target != std::pair<int, int>(kDLCPU, 0)) {
    raise(PyExc_BufferError,
          "__dlpack__: an array on " + self.view.device.to_string() +
              " is exported there or to the host, not to device " +
              nb::cast<std::string>(nb::repr(dl_device)));
  }
  const bool may_copy =
      copy_wanted.is_none() || argument<bool>(copy_wanted, "copy", "True, False or None");
  if (to_host && !may_copy) {
    raise(PyExc_BufferError,
          "__dlpack__: an array on " + self.view.device.to_string() +
              " cannot be exported to the host without a copy");
  }
  // Which PyTorch ends the process at.
  const bool backwards =
      std::ranges::any_of(self.view.strides, [](std::int64_t stride) { return stride < 0; });
  if (backwards && !may_copy) {
    raise(PyExc_BufferError,
          "__dlpack__: an array that runs backwards cannot be exported without a copy");
  }
  const bool copied = to_host || backwards || (!copy_wanted.is_none() && may_copy);
  // Who reads on the host has no stream that could wait.
  const Ready ready = *self.ready;
  if (copied || self.view.device.type != Device::Type::cuda) {
    wait_until_ready(ready);
  } else if (consumer) {
    ready.before(*consumer);
  } else if (ready.done()) {
    ready.wait();  // for its error
  }
  DLManagedTensorVersioned* managed = [&] {
    nb::gil_scoped_release release;
    if (!copied) return to_dlpack(self.view, self.owner);
    return copy(self.view, to_host ? Device::cpu() : self.view.device).to_dlpack();
  }();
  if (copied) managed->flags |= DLPACK_FLAG_BITMASK_IS_COPIED;
  return dlpack_capsule(managed, max_version);
}

// https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
nb::dict cuda_array_interface(PyDeviceArray& self) {
  if (self.view.device.type != Device::Type::cuda)
    raise(PyExc_AttributeError, "__cuda_array_interface__: the array is not on a CUDA device");
  nb::dict result;
  result["shape"] = shape_tuple(self.view.shape);
  result["typestr"] = self.view.dtype.numpy_str();
  result["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(self.view.data), false);
  result["strides"] =
      self.view.is_c_contiguous() ? nb::none() : shape_tuple(self.view.strides_or_c());
  result["version"] = 3;
  // Once the work is known to be done, no stream has to be waited for.
  const Ready ready = *self.ready;
  if (ready.done()) {
    ready.wait();
    result["stream"] = nb::none();
  } else {
    const auto handle = reinterpret_cast<std::uintptr_t>(ready.stream().raw());
    result["stream"] = handle == 0 ? 1 : handle;
  }
  return result;
}

// A copy of an array in host memory, C-ordered.
PyDeviceArray to_device(nb::handle array, nb::handle device) {
  const DType dtype = dtype_from_python(array.attr("dtype"));
  const nb::object dtype_object = numpy_dtype(dtype);
  const ArrayView host = input_view(array, dtype, dtype_object);
  const Device target = device_from_python(device);
  Tensor copied = [&] {
    nb::gil_scoped_release release;
    return copy(host.view, target);
  }();
  return device_array(std::move(copied), dtype_object);
}

PyDeviceArray empty_on_device(const Shape& shape, nb::handle dtype, nb::handle device) {
  const DType wanted = dtype_from_python(dtype);
  return device_array(Tensor::empty(shape, wanted, device_from_python(device)),
                      numpy_dtype(wanted));
}

// Elements of another type in the bytes of an array, from `offset_bytes` on.
PyDeviceArray view_on_device(PyDeviceArray& memory,
                             std::size_t offset_bytes,
                             const Shape& shape,
                             nb::handle dtype) {
  const DType wanted = dtype_from_python(dtype);
  const TensorView& whole = memory.view;
  const std::size_t nbytes = whole.size() * whole.dtype.itemsize();
  std::int64_t wanted_nbytes = static_cast<std::int64_t>(wanted.itemsize());
  for (const std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(wanted_nbytes, extent, &wanted_nbytes))
      raise(PyExc_ValueError, "view_on_device: a shape that cannot be");
  if (!whole.is_c_contiguous() || offset_bytes > nbytes ||
      static_cast<std::size_t>(wanted_nbytes) > nbytes - offset_bytes)
    raise(PyExc_ValueError,
          "view_on_device: expected memory of " + std::to_string(nbytes) + " bytes, got " +
              std::to_string(wanted_nbytes) + " from " + std::to_string(offset_bytes) + " on");
  return {memory.owner,
          {static_cast<std::byte*>(whole.data) + offset_bytes, shape, {}, wanted, whole.device},
          numpy_dtype(wanted),
          memory.ready};
}

std::int64_t size(const PyDeviceArray& self) {
  std::int64_t count = 1;
  for (std::int64_t extent : self.view.shape) count *= extent;
  return count;
}

std::string describe(PyDeviceArray& self) {
  return "<headrace.DeviceArray shape=" +
         nb::cast<std::string>(nb::str(shape_tuple(self.view.shape))) + " " +
         nb::cast<std::string>(nb::str(self.numpy_dtype)) +
         " device=" + self.view.device.to_string() + ">";
}

}  // namespace

PyDeviceArray device_array(Tensor&& tensor, nb::handle numpy_dtype) {
  TensorView view = tensor.view();
  Ready ready = tensor.ready();
  return {std::move(tensor).release(),
          std::move(view),
          nb::borrow(numpy_dtype),
          std::make_shared<Ready>(std::move(ready))};
}

namespace {

void wait_until_done(const Ready& ready, nb::handle timeout) {
  if (!ready.done()) wait_with_signals(timeout, [&](auto step) { return ready.wait_for(step); });
}

// Of work that nobody holds any more: from destructors, wherever the last reference went, so that
// an exception may be under way.
void report_lost(const Error& error) {
  const GilIfAlive gil;
  if (!gil) return;
  const nb::error_scope raised;
  try {
    const nb::object lost = exception_object(std::make_exception_ptr(error));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(lost.ptr())), lost.ptr());
  } catch (nb::python_error& failed) {
    failed.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  }
  PyErr_WriteUnraisable(nullptr);
}

}  // namespace

void wait_until_ready(Ready ready, nb::handle timeout) {
  wait_until_done(ready, timeout);
  nb::gil_scoped_release release;
  ready.wait();
}

void wait_until_writable(PyDeviceArray& array) {
  // Without the GIL somebody else may have given it another one.
  for (Ready ready = *array.ready; !ready.done(); ready = *array.ready)
    wait_until_done(ready, nb::none());
  *array.ready = Ready();
}

void bind_device_array(nb::module_& m) {
  set_lost_error_handler(report_lost);
  nb::class_<PyDeviceArray>(m, "DeviceArray", docs::kDeviceArray, nb::is_weak_referenceable())
      .def("__getitem__",
           getitem,
           nb::arg("key").none(),
           nb::sig("def __getitem__(self, key: typing.Any) -> DeviceArray"))
      .def("__len__",
           [](PyDeviceArray& self) {
             if (self.view.shape.empty())
               raise(PyExc_TypeError, "len() of an array without dimensions");
             return self.view.shape[0];
           })
      .def("__repr__", describe)
      .def(
          "to_numpy",
          to_numpy,
          nb::kw_only(),
          nb::arg("stream") = nb::none(),
          nb::sig("def to_numpy(self, *, stream: typing.Any = None) -> "
                  "numpy.typing.NDArray[typing.Any]"),
          "A copy in host memory, in C order. What ``stream`` (None: the default stream) was given "
          "before is waited for.")
      .def(
          "__array__",
          [](PyDeviceArray&, nb::handle, nb::handle) {
            raise(PyExc_TypeError,
                  "a DeviceArray is not copied to the host in passing: call to_numpy()");
          },
          nb::arg("dtype") = nb::none(),
          nb::arg("copy") = nb::none(),
          nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> "
                  "typing.NoReturn"))
      .def(
          "result",
          [](nb::handle self, nb::handle timeout) {
            wait_until_ready(*nb::cast<PyDeviceArray&>(self).ready, timeout);
            return nb::borrow(self);
          },
          nb::arg("timeout") = nb::none(),
          nb::sig("def result(self, timeout: float | None = None) -> DeviceArray"),
          "Wait until the elements are there and return the array itself; `TimeoutError` after "
          "``timeout`` seconds. Raises what the decode found wrong.")
      .def(
          "done",
          [](PyDeviceArray& self) { return self.ready->done(); },
          "Whether the elements are there, or never will be. Only `codecs.decode_batch` with a "
          "stream gives arrays that are not done.")
      .def("__dlpack__",
           dlpack,
           nb::kw_only(),
           nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(),
           nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: typing.Any = None, "
                   "max_version: tuple[int, int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> "
                   "typing.Any"),
           "Export as a DLPack capsule, without a copy unless one is asked for. ``stream`` (None: "
           "the "
           "default stream; -1: none) waits for the elements, the host does not.")
      .def(
          "__dlpack_device__",
          [](PyDeviceArray& self) { return dlpack_device_of(self.view.device); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def_prop_ro("__cuda_array_interface__",
                   cuda_array_interface,
                   nb::sig("def __cuda_array_interface__(self) -> dict[str, typing.Any]"),
                   "Version 3; there is none for arrays that are not on a CUDA device.")
      .def_prop_ro(
          "shape",
          [](PyDeviceArray& self) { return shape_tuple(self.view.shape); },
          nb::sig("def shape(self) -> tuple[int, ...]"),
          "Extent of each dimension.")
      .def_prop_ro(
          "strides",
          [](PyDeviceArray& self) { return shape_tuple(self.view.strides_or_c()); },
          nb::sig("def strides(self) -> tuple[int, ...]"),
          "Bytes from one element to the next along each dimension.")
      .def_prop_ro(
          "dtype",
          [](PyDeviceArray& self) { return self.numpy_dtype; },
          nb::sig("def dtype(self) -> numpy.dtype[typing.Any]"),
          "Type of an element, in native byte order.")
      .def_prop_ro(
          "ndim",
          [](PyDeviceArray& self) { return self.view.shape.size(); },
          "Number of dimensions.")
      .def_prop_ro("size", size, "Number of elements.")
      .def_prop_ro(
          "nbytes",
          [](PyDeviceArray& self) {
            return size(self) * static_cast<std::int64_t>(self.view.dtype.itemsize());
          },
          "Bytes of the elements.")
      .def_prop_ro(
          "device",
          [](PyDeviceArray& self) { return self.view.device.to_string(); },
          "``\"cuda:0\"``.");
  m.def("to_device",
        to_device,
        nb::arg("array"),
        nb::arg("device"),
        nb::sig("def to_device(array: typing.Any, device: str) -> DeviceArray"));
  m.def("view_on_device",
        view_on_device,
        nb::arg("memory"),
        nb::arg("offset_bytes"),
        nb::arg("shape"),
        nb::arg("dtype"),
        nb::sig("def view_on_device(memory: DeviceArray, offset_bytes: int, "
                "shape: tuple[int, ...], dtype: typing.Any) -> DeviceArray"));
  m.def("empty_on_device",
        empty_on_device,
        nb::arg("shape"),
        nb::arg("dtype"),
        nb::arg("device"),
        nb::sig("def empty_on_device(shape: tuple[int, ...], dtype: typing.Any, device: str) -> "
                "DeviceArray"));
}

}  // namespace headrace::python
