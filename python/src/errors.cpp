#include <headrace/error.h>

#include <exception>
#include <new>

#include "common.h"

namespace headrace::python {

namespace {

PyObject* corrupt_error = nullptr;
PyObject* device_error = nullptr;
PyObject* cancelled_error = nullptr;
PyObject* conflict_error = nullptr;

PyObject* python_class(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return PyExc_ValueError;
    case ErrorCode::not_found:
      return PyExc_FileNotFoundError;
    case ErrorCode::corrupt:
      return corrupt_error;
    case ErrorCode::unsupported:
      return PyExc_NotImplementedError;
    case ErrorCode::io:
      return PyExc_OSError;
    case ErrorCode::out_of_memory:
      return PyExc_MemoryError;
    case ErrorCode::device:
      return device_error;
    case ErrorCode::cancelled:
      return cancelled_error;
    case ErrorCode::out_of_bounds:
      return PyExc_IndexError;
    case ErrorCode::permission_denied:
      return PyExc_PermissionError;
    case ErrorCode::conflict:
      return conflict_error;
  }
  return PyExc_RuntimeError;
}

// Messages may hold bytes of a file name or of corrupt data: whatever is no UTF-8 is replaced.
nb::object message_text(const Error& error) {
  const std::string text = error.what();
  return steal_or_throw(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

void set_python_error(const Error& error) {
  nb::object text = message_text(error);
  PyObject* cls = python_class(error.code());
  if (error.os_error() != 0 && PyObject_IsSubclass(cls, PyExc_OSError) == 1) {
    // With two arguments OSError picks the subclass of the errno itself.
    nb::object args = nb::make_tuple(error.os_error(), text);
    PyErr_SetObject(cls, args.ptr());
  } else {
    PyErr_SetObject(cls, text.ptr());
  }
}

void translate(const std::exception_ptr& pending, void*) {
  try {
    std::rethrow_exception(pending);
  } catch (const Error& error) {
    set_python_error(error);
  }
}

// Kept as long as the process: exceptions may be thrown until its end.
PyObject* class_of(const char* name) {
  return package_attribute("headrace.errors", name).release().ptr();
}

}  // namespace

void bind_errors() {
  corrupt_error = class_of("CorruptError");
  device_error = class_of("DeviceError");
  cancelled_error = class_of("CancelledError");
  conflict_error = class_of("ConflictError");
  nb::register_exception_translator(translate);
}

}  // namespace headrace::python
