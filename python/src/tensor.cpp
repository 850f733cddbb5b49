#include "tensor.h"

#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <utility>

#include "device_array.h"
#include "dlpack.h"
#include "dlpack_import.h"
#include "dtype.h"
#include "numpy_api.h"
#include "vlen.h"

namespace headrace::python {

namespace {

// Memory that headrace allocated, as a writable buffer for numpy.ndarray(buffer=...).
struct OwnedMemory {
  std::shared_ptr<void> owner;
  void* data;
  std::size_t nbytes;
};

int get_buffer(PyObject* self, Py_buffer* buffer, int flags) {
  const auto* memory = nb::inst_ptr<OwnedMemory>(self);
  return PyBuffer_FillInfo(
      buffer, self, memory->data, static_cast<Py_ssize_t>(memory->nbytes), 0, flags);
}

PyType_Slot owned_memory_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {0, nullptr},
};

std::string shape_text(const Shape& shape) {
  return nb::cast<std::string>(nb::str(shape_tuple(shape)));
}

nb::object call3(PyObject* callable, nb::handle a, nb::handle b, nb::handle c) {
  PyObject* args[] = {nullptr, a.ptr(), b.ptr(), c.ptr()};
  return steal_or_throw(
      PyObject_Vectorcall(callable, args + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

nb::object call2(PyObject* callable, nb::handle a, nb::handle b) {
  PyObject* args[] = {nullptr, a.ptr(), b.ptr()};
  return steal_or_throw(
      PyObject_Vectorcall(callable, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

ArrayView view_of_interface(const ArrayInterface& array, nb::object keep, const DType& dtype) {
  ArrayView result;
  result.view.data = array.data;
  result.view.shape.assign(array.shape, array.shape + array.nd);
  result.view.strides.assign(array.strides, array.strides + array.nd);
  result.view.dtype = dtype;
  result.keep_alive = std::move(keep);
  return result;
}

bool same_dtype(nb::handle found, nb::handle wanted) {
  if (found.is(wanted)) return true;
  const int equal = PyObject_RichCompareBool(found.ptr(), wanted.ptr(), Py_EQ);
  if (equal < 0) throw nb::python_error();
  return equal == 1;
}

// `found` is the dtype of `array`. NumPy's cast does not swap the bytes of times without a unit.
nb::object with_dtype(nb::handle array, nb::handle found, nb::handle wanted) {
  const auto kind = nb::cast<std::string>(found.attr("kind"));
  if ((kind == "M" || kind == "m") && same_dtype(found.attr("newbyteorder")("S"), wanted)) {
    return array.attr("byteswap")().attr("view")(wanted);
  }
  return call2(numpy().asarray, array, wanted);
}

[[noreturn]] void wrong_dtype(const std::string& found, const std::string& wanted) {
  raise(PyExc_ValueError, "[read] out: expected dtype " + wanted + ", got " + found);
}

// https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
ArrayView view_of_cuda_interface(
    nb::handle object, bool writable, const char* what, const Device& device, Stream& stream) {
  nb::object interface = object.attr("__cuda_array_interface__");
  nb::object data = interface["data"];
  if (writable && nb::cast<bool>(nb::object(data[1])))
    raise(PyExc_ValueError, std::string(what) + ": the array is read-only");
  nb::object get = interface.attr("get");
  if (!nb::object(get("mask")).is_none())
    raise(PyExc_NotImplementedError, std::string(what) + ": masked arrays");
  ArrayView result;
  TensorView& view = result.view;
  view.device = device.is_cpu() ? Device::cuda() : device;
  view.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(nb::object(data[0])));
  view.dtype = DType::from_numpy_str(nb::cast<std::string>(nb::object(interface["typestr"])));
  view.shape = shape_from_python(nb::object(interface["shape"]), what);
  nb::object strides = get("strides");
  if (!strides.is_none()) view.strides = shape_from_python(strides, what);
  nb::object ready = get("stream");
  if (!ready.is_none() && !stream.raw()) stream = stream_from_python(ready);
  result.keep_alive = nb::borrow(object);
  return result;
}

// NumPy forgets the flags of structured arrays in __array_struct__.
bool is_writeable(nb::handle ndarray, const ArrayInterface& array) {
  if ((array.flags & ArrayInterface::kWriteable) != 0) return true;
  return array.typekind == 'V' && nb::cast<bool>(ndarray.attr("flags").attr("writeable"));
}

ArrayView output_ndarray(nb::handle out, const DType& dtype, nb::handle numpy_dtype) {
  const ArrayInterface* array = nullptr;
  nb::object capsule = array_interface(out, &array);
  if (!capsule.is_valid()) raise(PyExc_TypeError, "[read] out: __array_struct__ is missing");
  if (!is_writeable(out, *array)) {
    raise(PyExc_ValueError, "[read] out: the array is read-only");
  }
  nb::object found = steal_or_throw(PyObject_GetAttr(out.ptr(), numpy().dtype_name));
  if (!same_dtype(found, numpy_dtype)) {
    wrong_dtype(nb::cast<std::string>(nb::str(found)), nb::cast<std::string>(nb::str(numpy_dtype)));
  }
  // The capsule holds the struct only: the array itself is to be kept.
  return view_of_interface(*array, nb::borrow(out), dtype);
}

}  // namespace

ArrayView empty_ndarray(const Shape& shape, std::size_t itemsize, nb::handle numpy_dtype) {
  // From here on headrace's own memory is faster: it reuses pages and asks for huge ones.
  constexpr std::size_t kOwnMemory = std::size_t{1} << 20;
  std::size_t nbytes = itemsize;
  for (std::int64_t extent : shape) {
    if (__builtin_mul_overflow(nbytes, static_cast<std::size_t>(extent), &nbytes)) {
      raise(PyExc_MemoryError, "[read] a result of shape " + shape_text(shape) + " is too large");
    }
  }
  ArrayView result;
  result.view.shape = shape;
  if (nbytes >= kOwnMemory) {
    // Raw bytes: NumPy applies the dtype.
    Tensor tensor = Tensor::empty({static_cast<std::int64_t>(nbytes)}, DType::uint8);
    result.view.data = tensor.data();
    nb::object memory =
        nb::cast(OwnedMemory{std::move(tensor).release(), result.view.data, nbytes});
    result.keep_alive = call3(numpy().ndarray, shape_tuple(shape), numpy_dtype, memory);
    return result;
  }
  result.keep_alive = call2(numpy().empty, shape_tuple(shape), numpy_dtype);
  const ArrayInterface* array = nullptr;
  nb::object capsule = array_interface(result.keep_alive, &array);
  result.view.data = array->data;
  return result;
}

nb::object to_ndarray(Tensor&& tensor, nb::handle numpy_dtype) {
  nb::object shape = shape_tuple(tensor.shape());
  void* data = tensor.data();
  const std::size_t nbytes = tensor.nbytes();
  if (nbytes == 0) return call2(numpy().empty, shape, numpy_dtype);
  nb::object memory = nb::cast(OwnedMemory{std::move(tensor).release(), data, nbytes});
  return call3(numpy().ndarray, shape, numpy_dtype, memory);
}

namespace {

// Calls of headrace wait until its elements are there, or raise what is wrong with them.
ArrayView device_array_view(nb::handle array) {
  const auto& self = nb::cast<PyDeviceArray&>(array);
  wait_until_ready(*self.ready);
  return {self.view, nb::borrow(array)};
}

// To be written: what was wrong with what it holds does not count.
ArrayView writable_device_array_view(nb::handle array) {
  auto& self = nb::cast<PyDeviceArray&>(array);
  wait_until_writable(self);
  return {self.view, nb::borrow(array)};
}

ArrayView any_output(nb::handle out,
                     const DType& dtype,
                     nb::handle numpy_dtype,
                     const Device& device,
                     Stream& stream,
                     ProducerStreams& waited) {
  if (PyObject_TypeCheck(out.ptr(), reinterpret_cast<PyTypeObject*>(numpy().ndarray)) != 0) {
    return output_ndarray(out, dtype, numpy_dtype);
  }
  ArrayView result;
  if (nb::isinstance<PyDeviceArray>(out)) {
    result = writable_device_array_view(out);
  } else if (nb::hasattr(out, "__dlpack__")) {
    result = view_of_dlpack(out, true, "[read] out", stream, waited);
  } else if (nb::hasattr(out, "__cuda_array_interface__")) {
    result = view_of_cuda_interface(out, true, "[read] out", device, stream);
  }
  if (result.keep_alive.is_valid()) {
    if (result.view.dtype != dtype) wrong_dtype(result.view.dtype.to_string(), dtype.to_string());
    return result;
  }
  if (PyObject_CheckBuffer(out.ptr()) == 0) {
    raise(PyExc_TypeError,
          "[read] out: expected an array, a DLPack object or a writable buffer, got " +
              nb::cast<std::string>(nb::str(out.type().attr("__name__"))));
  }
  // NumPy would copy bytes and str; it shares a memoryview.
  nb::object buffer = steal_or_throw(PyMemoryView_FromObject(out.ptr()));
  nb::object array = steal_or_throw(PyObject_CallOneArg(numpy().asarray, buffer.ptr()));
  return output_ndarray(array, dtype, numpy_dtype);
}

// Memory of a device as a write takes it; nothing for what lies on the host.
std::optional<ArrayView> device_input(nb::handle data) {
  constexpr const char* kWhat = "[write] data";
  if (nb::isinstance<PyDeviceArray>(data)) return device_array_view(data);
  Stream stream;
  ProducerStreams waited;
  if (has_dlpack(data) && !nb::hasattr(data, "__array_struct__") &&
      !dlpack_memory(data, kWhat).is_cpu())
    return view_of_dlpack(data, false, kWhat, stream, waited);
  if (nb::hasattr(data, "__cuda_array_interface__"))
    return view_of_cuda_interface(data, false, kWhat, Device::cuda(), stream);
  return std::nullopt;
}

}  // namespace

std::optional<ArrayView> exported_view(nb::handle object,
                                       bool writable,
                                       const char* what,
                                       const Device& device,
                                       Stream& stream,
                                       ProducerStreams& waited) {
  if (PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(numpy().ndarray)) != 0)
    return std::nullopt;
  if (nb::isinstance<PyDeviceArray>(object))
    return writable ? writable_device_array_view(object) : device_array_view(object);
  if (has_dlpack(object) &&
      (PyObject_CheckBuffer(object.ptr()) == 0 || !dlpack_memory(object, what).is_cpu()))
    return view_of_dlpack(object, writable, what, stream, waited);
  if (nb::hasattr(object, "__cuda_array_interface__"))
    return view_of_cuda_interface(object, writable, what, device, stream);
  return std::nullopt;
}

ArrayView output_view(nb::handle out,
                      const DType& dtype,
                      nb::handle numpy_dtype,
                      const Device& device,
                      Stream& stream,
                      ProducerStreams& waited) {
  ArrayView result = any_output(out, dtype, numpy_dtype, device, stream, waited);
  // The memory of that device is the host's.
  if (device.type == Device::Type::simt && result.view.device.is_cpu()) result.view.device = device;
  return result;
}

namespace {

constexpr int kMaxListDepth = 64;  // NumPy looks no further

// Whether arrays of NumPy, which may be masked, are among the items of a list or tuple.
bool holds_arrays(PyObject* value, int depth = 0) {
  const bool is_list = PyList_Check(value) != 0;
  if ((!is_list && PyTuple_Check(value) == 0) || depth > kMaxListDepth) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(value); ++i) {
    PyObject* const item = is_list ? PyList_GET_ITEM(value, i) : PyTuple_GET_ITEM(value, i);
    if (PyFloat_CheckExact(item) || PyLong_CheckExact(item) || PyUnicode_CheckExact(item)) continue;
    if (PyObject_TypeCheck(item, reinterpret_cast<PyTypeObject*>(numpy().ndarray)) != 0 ||
        holds_arrays(item, depth + 1))
      return true;
  }
  return false;
}

// What is no array of NumPy as one. Lists, and what __array__() gives, may hold masked elements.
nb::object to_ndarray(nb::handle data, nb::handle numpy_dtype) {
  PyObject* const object = data.ptr();
  if (PyLong_Check(object) != 0 || PyFloat_Check(object) != 0 || PyUnicode_Check(object) != 0)
    return call2(numpy().asarray, data, numpy_dtype);
  return package_attribute("headrace._check", "array")("data", data, numpy_dtype);
}

}  // namespace

ArrayView input_view(nb::handle data, const DType& dtype, nb::handle numpy_dtype) {
  auto* const ndarray = reinterpret_cast<PyTypeObject*>(numpy().ndarray);
  const bool is_ndarray = PyObject_TypeCheck(data.ptr(), ndarray) != 0;
  // Elements may be masked, or strings missing, where memory holds something all the same.
  const auto check_elements = [&] {
    package_attribute("headrace._check", "elements")("data", data);
  };
  if (is_ndarray && (Py_TYPE(data.ptr()) != ndarray || dtype.variable_length())) check_elements();
  if (dtype.variable_length() && !is_ndarray)
    return vlen_input(to_ndarray(data, numpy_dtype), dtype, numpy_dtype);
  if (dtype.variable_length()) return vlen_input(data, dtype, numpy_dtype);
  nb::object array = nb::borrow(data);
  if (!is_ndarray) {
    if (auto on_device = device_input(data)) return std::move(*on_device);
    if (nb::hasattr(data, "__dlpack__") && !nb::hasattr(data, "__array_struct__")) {
      ProducerStreams waited;
      ArrayView result = view_of_dlpack(data, false, "[write] data", {}, waited);
      if (result.view.dtype == dtype) return result;
    }
    array = to_ndarray(data, numpy_dtype);
  } else {
    nb::object found = steal_or_throw(PyObject_GetAttr(data.ptr(), numpy().dtype_name));
    if (!same_dtype(found, numpy_dtype)) {
      check_elements();
      array = with_dtype(data, found, numpy_dtype);
    }
  }
  const ArrayInterface* found = nullptr;
  nb::object capsule = array_interface(array, &found);
  if (!capsule.is_valid()) raise(PyExc_TypeError, "[write] data: not an array");
  return view_of_interface(*found, std::move(array), dtype);
}

nb::object unboxed(nb::handle array) {
  return steal_or_throw(PyObject_GetItem(array.ptr(), numpy().empty_tuple));
}

void bind_tensor(nb::module_& m) {
  nb::class_<OwnedMemory>(m, "_OwnedMemory", nb::type_slots(owned_memory_slots));
  m.def("_holds_arrays", [](nb::handle value) { return holds_arrays(value.ptr()); });
}

}  // namespace headrace::python
