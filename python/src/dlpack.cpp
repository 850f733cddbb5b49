#include "dlpack.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "errors.h"

namespace headrace::python {

namespace {

constexpr const char* kVersionedName = "dltensor_versioned";
constexpr const char* kLegacyName = "dltensor";

// A consumer renames the capsule when it takes the tensor over; else it is freed here.
template <typename Managed>
void free_if_unused(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter != nullptr) managed->deleter(managed);
}

void free_versioned(PyObject* capsule) {
  free_if_unused<DLManagedTensorVersioned>(capsule, kVersionedName);
}

void free_legacy(PyObject* capsule) { free_if_unused<DLManagedTensor>(capsule, kLegacyName); }

void delete_legacy(DLManagedTensor* legacy) {
  auto* versioned = static_cast<DLManagedTensorVersioned*>(legacy->manager_ctx);
  if (versioned->deleter != nullptr) versioned->deleter(versioned);
  delete legacy;
}

nb::object legacy_capsule(DLManagedTensorVersioned* managed) {
  auto* legacy = new DLManagedTensor{managed->dl_tensor, managed, delete_legacy};
  PyObject* capsule = PyCapsule_New(legacy, kLegacyName, free_legacy);
  if (capsule == nullptr) {
    delete_legacy(legacy);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

// The handle of a stream object of another library; null when it is none.
nb::object native_handle(nb::handle stream) {
  if (PyLong_Check(stream.ptr()) && !PyBool_Check(stream.ptr())) return nb::borrow(stream);
  if (nb::hasattr(stream, "__cuda_stream__")) {
    nb::object pair = stream.attr("__cuda_stream__");
    if (PyCallable_Check(pair.ptr()) != 0) pair = pair();
    return nb::object(pair[1]);
  }
  for (const char* name : {"cuda_stream", "ptr"}) {
    if (nb::hasattr(stream, name)) return stream.attr(name);
  }
  return {};
}

}  // namespace

nb::object versioned_capsule(DLManagedTensorVersioned* managed) {
  PyObject* capsule = PyCapsule_New(managed, kVersionedName, free_versioned);
  if (capsule == nullptr) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

nb::object dlpack_capsule(DLManagedTensorVersioned* managed, nb::handle max_version) {
  constexpr const char* kWanted = "a pair such as (1, 2)";
  bool versioned = false;
  try {
    versioned = !max_version.is_none() &&
                argument<std::pair<int, int>>(max_version, "max_version", kWanted).first >= 1;
  } catch (...) {
    managed->deleter(managed);
    throw;
  }
  return versioned ? versioned_capsule(managed) : legacy_capsule(managed);
}

DLDeviceType dlpack_type_of(const Device& device) {
  switch (device.type) {
    case Device::Type::cuda:
      return kDLCUDA;
    case Device::Type::cpu:
    case Device::Type::simt:  // its memory is the host's
      break;
  }
  return kDLCPU;
}

nb::object dlpack_device_of(const Device& device) {
  return nb::make_tuple(static_cast<int>(dlpack_type_of(device)), device.index);
}

void check_dlpack_type(const DType& dtype) {
  switch (dtype.kind()) {
    case DType::Kind::boolean:
    case DType::Kind::signed_integer:
    case DType::Kind::unsigned_integer:
    case DType::Kind::floating:
    case DType::Kind::ml_floating:
    case DType::Kind::complex:
      return;
    default:
      raise(PyExc_BufferError,
            "__dlpack__: DLPack has no type for " + dtype.to_string() + ", use NumPy");
  }
}

Stream stream_from_python(nb::handle stream) {
  if (stream.is_none()) return {};
  const nb::object handle = native_handle(stream);
  const auto text = [&] { return nb::cast<std::string>(nb::repr(stream)); };
  if (!handle.is_valid()) {
    raise(PyExc_TypeError,
          "stream: expected None, a raw handle or a stream of PyTorch or CuPy, got " + text());
  }
  const long long raw = PyLong_AsLongLong(handle.ptr());
  if (raw == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (raw < 0) raise(PyExc_ValueError, "stream: there is no stream " + text());
  // Zero is the default stream, whose other name is 1.
  return Stream::from(reinterpret_cast<void*>(raw == 0 ? 1 : raw));
}

}  // namespace headrace::python
