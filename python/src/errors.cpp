#include <headrace/error.h>

#include <exception>
#include <new>

#include "common.h"

namespace headrace::python {

namespace {

PyObject* corrupt_error = nullptr;
PyObject* device_error = nullptr;
PyObject* cancelled_error = nullptr;

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

PyObject* new_class(nb::module_& m, const char* name, const char* doc, PyObject* base) {
  const std::string full_name = std::string("headrace.") + name;
  nb::object cls = steal_or_throw(PyErr_NewExceptionWithDoc(full_name.c_str(), doc, base, nullptr));
  m.attr(name) = cls;
  return cls.release().ptr();
}

}  // namespace

void bind_errors(nb::module_& m) {
  corrupt_error = new_class(m,
                            "CorruptError",
                            "Bytes that were read break their format or fail their checksum.",
                            PyExc_ValueError);
  device_error = new_class(m, "DeviceError", "A call to a device failed.", PyExc_RuntimeError);
  cancelled_error = new_class(m, "CancelledError", "The request was cancelled.", PyExc_Exception);
  nb::register_exception_translator(translate);
}

}  // namespace headrace::python
