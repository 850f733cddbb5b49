#include "dlpack_import.h"

#include <headrace/dlpack.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dlpack.h"

namespace headrace::python {

namespace {

// DLPackExchangeAPI: https://dmlc.github.io/dlpack/latest/c_api.html
struct ExchangeTable {
  DLPackVersion version;
  ExchangeTable* previous;
  void* allocate;
  int (*export_unordered)(PyObject* object, DLManagedTensorVersioned** exported);
  void* import;
  void* borrow;
  int (*current_stream)(std::int32_t device_type, std::int32_t index, void** stream);
};

// Sub-byte types are packed in DLPack and take a byte each here.
DType dtype_from_dlpack(const DLDataType& type) {
  struct Known {
    std::uint8_t code;
    std::uint8_t bits;
    DType dtype;
  };
  static const Known known[] = {
      {kDLUInt, 8, DType::uint8},
      {kDLFloat, 32, DType::float32},
      {kDLInt, 8, DType::int8},
      {kDLInt, 16, DType::int16},
      {kDLInt, 32, DType::int32},
      {kDLInt, 64, DType::int64},
      {kDLUInt, 16, DType::uint16},
      {kDLUInt, 32, DType::uint32},
      {kDLUInt, 64, DType::uint64},
      {kDLFloat, 16, DType::float16},
      {kDLFloat, 64, DType::float64},
      {kDLBfloat, 16, DType::bfloat16},
      {kDLComplex, 64, DType::complex64},
      {kDLComplex, 128, DType::complex128},
      {kDLBool, 8, DType::boolean},
      {kDLFloat8_e3m4, 8, DType::from_name("float8_e3m4")},
      {kDLFloat8_e4m3, 8, DType::from_name("float8_e4m3")},
      {kDLFloat8_e4m3b11fnuz, 8, DType::from_name("float8_e4m3b11fnuz")},
      {kDLFloat8_e4m3fn, 8, DType::from_name("float8_e4m3fn")},
      {kDLFloat8_e4m3fnuz, 8, DType::from_name("float8_e4m3fnuz")},
      {kDLFloat8_e5m2, 8, DType::from_name("float8_e5m2")},
      {kDLFloat8_e5m2fnuz, 8, DType::from_name("float8_e5m2fnuz")},
      {kDLFloat8_e8m0fnu, 8, DType::from_name("float8_e8m0fnu")},
  };
  for (const Known& row : known)
    if (row.code == type.code && row.bits == type.bits && type.lanes == 1) return row.dtype;
  raise(PyExc_ValueError,
        "DLPack type code " + std::to_string(static_cast<int>(type.code)) + " with " +
            std::to_string(static_cast<int>(type.bits)) + " bits and " +
            std::to_string(type.lanes) + " lanes has no headrace data type");
}

// Where the memory of a tensor lies; nothing when that is neither the host nor CUDA.
std::optional<Device> device_of(const DLDevice& device) {
  switch (static_cast<int>(device.device_type)) {
    case kDLCUDA:
    case kDLCUDAManaged:
      return Device::cuda(device.device_id);
    case kDLCPU:
    case kDLCUDAHost:
      return Device::cpu();
    default:
      return std::nullopt;
  }
}

// That of the type itself: a subclass may export in another way.
const ExchangeTable* table_of(nb::handle object) {
  static PyObject* const name = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  PyObject* const attributes = Py_TYPE(object.ptr())->tp_dict;
  if (name == nullptr || attributes == nullptr) return nullptr;
  PyObject* const capsule = PyDict_GetItemWithError(attributes, name);
  if (capsule == nullptr) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return nullptr;
  }
  constexpr const char* kName = "dlpack_exchange_api";
  if (PyCapsule_IsValid(capsule, kName) == 0) return nullptr;
  const auto* table = static_cast<const ExchangeTable*>(PyCapsule_GetPointer(capsule, kName));
  while (table != nullptr && table->version.major != 1) table = table->previous;
  return table;
}

// Of a table: its type is asked in another way. But who interrupts the program means all of it.
void forget_refusal() {
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0)
    throw nb::python_error();
  PyErr_Clear();
}

// Nothing when it does not tell.
std::optional<void*> current_stream(const ExchangeTable& table, const Device& device) {
  void* stream = nullptr;
  if (table.current_stream != nullptr && table.current_stream(kDLCUDA, device.index, &stream) == 0)
    return stream;
  forget_refusal();
  return std::nullopt;
}

// PyTorch's table does not look at what its __dlpack__ refuses.
bool may_be_refused(nb::handle object, const DLTensor& tensor) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  if (tensor.dtype.code == kDLComplex) return true;  // conjugated, perhaps
  if (tensor.dtype.code <= kDLUInt || tensor.dtype.code == kDLBool) return false;
  nb::object found = nb::steal(PyObject_GetAttr(object.ptr(), name));
  if (found.is_valid()) return !found.is(Py_False);
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return false;
}

// PyTorch exports the memory of what is negated only when it is read, such as z.conj().imag,
// without a word.
void check_signs(nb::handle object, const DLTensor& tensor, const char* what) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  const std::uint8_t code = tensor.dtype.code;
  if (code != kDLFloat && code != kDLBfloat && code != kDLComplex) return;
  nb::object found = nb::steal(PyObject_GetAttr(object.ptr(), name));
  if (!found.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
    PyErr_Clear();
  } else if (PyCallable_Check(found.ptr()) != 0 && found().is(Py_True)) {
    raise(PyExc_BufferError,
          std::string(what) + ": the signs of the tensor's elements are not those in its memory; " +
              "call resolve_neg()");
  }
}

nb::object produce_capsule(nb::handle object, const Device& device, const Stream& stream) {
  nb::object method = object.attr("__dlpack__");
  nb::dict kwargs;
  // The producer makes its data ready on this stream; 1 is the default one.
  if (!device.is_cpu())
    kwargs["stream"] = stream.raw() ? reinterpret_cast<std::uintptr_t>(stream.raw()) : 1;
  kwargs["max_version"] = nb::make_tuple(1, 0);
  nb::object capsule = nb::steal(PyObject_VectorcallDict(method.ptr(), nullptr, 0, kwargs.ptr()));
  if (capsule.is_valid()) return capsule;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
  PyErr_Clear();  // a producer from before DLPack 1.0
  PyDict_DelItemString(kwargs.ptr(), "max_version");
  return steal_or_throw(PyObject_VectorcallDict(method.ptr(), nullptr, 0, kwargs.ptr()));
}

// Such as PyTorch's of a storage that was given back, and what no array can be.
void check_memory(const DLTensor& tensor, const char* what) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr))
    raise(PyExc_BufferError, std::string(what) + ": the DLPack tensor has no shape");
  const bool is_empty =
      std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim;
  if (tensor.data == nullptr && !is_empty)
    raise(PyExc_BufferError, std::string(what) + ": the DLPack tensor has no memory");
}

ArrayView view_of_tensor(const DLTensor& tensor,
                         const Device& device,
                         nb::object keep_alive,
                         const char* what) {
  check_memory(tensor, what);
  ArrayView result;
  TensorView& view = result.view;
  view.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  view.device = device;
  view.dtype = dtype_from_dlpack(tensor.dtype);
  view.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  if (tensor.strides != nullptr) {
    for (std::int32_t i = 0; i < tensor.ndim; ++i) {
      view.strides.push_back(tensor.strides[i] * static_cast<std::int64_t>(view.dtype.itemsize()));
    }
  }
  result.keep_alive = std::move(keep_alive);
  return result;
}

// The capsule keeps its name, so its own destructor frees the tensor when the view is dropped.
const DLTensor& tensor_of(nb::handle capsule, bool writable, const char* what) {
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") == 0) {
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    if (managed == nullptr) throw nb::python_error();
    return managed->dl_tensor;
  }
  auto* managed = static_cast<DLManagedTensorVersioned*>(
      PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
  if (managed->version.major != 1) {
    raise(PyExc_BufferError,
          std::string(what) + ": DLPack version " + std::to_string(managed->version.major) +
              " is not known");
  }
  if (writable && (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0) {
    raise(PyExc_ValueError, std::string(what) + ": the DLPack tensor is read-only");
  }
  if (writable && (managed->flags & DLPACK_FLAG_BITMASK_IS_COPIED) != 0) {
    raise(PyExc_ValueError,
          std::string(what) + ": DLPack gives a copy, which would be filled in place of the array");
  }
  return managed->dl_tensor;
}

// Nothing where __dlpack__ has to be asked: it has more to say, or the stream has to be made to
// wait.
std::optional<ArrayView> view_by_table(const ExchangeTable& table,
                                       nb::handle object,
                                       bool writable,
                                       const char* what,
                                       const Stream& stream,
                                       const ProducerStreams& waited) {
  DLManagedTensorVersioned* managed = nullptr;
  if (table.export_unordered(object.ptr(), &managed) != 0 || managed == nullptr) {
    forget_refusal();
    return std::nullopt;
  }
  nb::object capsule = versioned_capsule(managed);
  const DLTensor& tensor = tensor_of(capsule, writable, what);
  const std::optional<Device> device = device_of(tensor.device);
  if (!device || may_be_refused(object, tensor)) return std::nullopt;
  check_signs(object, tensor, what);
  if (!device->is_cpu()) {
    const std::optional<void*> producer = current_stream(table, *device);
    if (!producer || !waited.is_waited_for(*device, *producer, stream.raw())) return std::nullopt;
  }
  return view_of_tensor(tensor, *device, std::move(capsule), what);
}

}  // namespace

bool ProducerStreams::is_waited_for(const Device& device, void* producer, void* consumer) const {
  return producer == consumer || std::ranges::any_of(pairs_, [&](const Pair& pair) {
           return pair.device == device && pair.producer == producer && pair.consumer == consumer;
         });
}

void ProducerStreams::note(const Device& device, void* producer, void* consumer) {
  if (!is_waited_for(device, producer, consumer)) pairs_.push_back({device, producer, consumer});
}

bool has_dlpack(nb::handle object) {
  return table_of(object) != nullptr ||
         (nb::hasattr(object, "__dlpack__") && nb::hasattr(object, "__dlpack_device__"));
}

Device dlpack_memory(nb::handle object, const char* what) {
  nb::object device = object.attr("__dlpack_device__")();
  const int type = nb::cast<int>(nb::int_(nb::object(device[0])));
  const int index = nb::cast<int>(nb::int_(nb::object(device[1])));
  if (type == kDLCUDA || type == kDLCUDAManaged) return Device::cuda(index);
  if (type != kDLCPU && type != kDLCUDAHost) {
    raise(PyExc_NotImplementedError,
          std::string(what) + ": DLPack device type " + std::to_string(type) +
              " is neither host memory nor CUDA");
  }
  return Device::cpu();
}

ArrayView view_of_dlpack(nb::handle object,
                         bool writable,
                         const char* what,
                         const Stream& stream,
                         ProducerStreams& waited) {
  const ExchangeTable* const table = table_of(object);
  if (table != nullptr) {
    if (auto view = view_by_table(*table, object, writable, what, stream, waited))
      return std::move(*view);
  }
  const Device device = dlpack_memory(object, what);
  const std::optional<void*> producer =
      table != nullptr && !device.is_cpu() ? current_stream(*table, device) : std::nullopt;
  nb::object capsule = produce_capsule(object, device, stream);
  if (producer) waited.note(device, *producer, stream.raw());
  const DLTensor& tensor = tensor_of(capsule, writable, what);
  check_signs(object, tensor, what);
  return view_of_tensor(tensor, device, std::move(capsule), what);
}

}  // namespace headrace::python
