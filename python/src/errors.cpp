#include "errors.h"

#include <headrace/error.h>
#include <nanobind/stl/string.h>

#include <new>

#include "future.h"

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
  } catch (const ApplicationError& error) {
    PyErr_SetObject(error.exception().type().ptr(), error.exception().ptr());
  } catch (const std::bad_cast&) {
    PyErr_SetString(PyExc_TypeError, "an argument is of a type that is not expected here");
  }
}

// Whatever a str holds: lone surrogates, which UTF-8 has not, become question marks.
std::string utf8(nb::handle text) {
  const nb::object bytes =
      steal_or_throw(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "replace"));
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

// Takes the error that is set.
nb::object raised_object() {
  nb::python_error raised;
  return nb::borrow(raised.value());
}

// Kept as long as the process: exceptions may be thrown until its end.
PyObject* class_of(const char* name) {
  return package_attribute("headrace.errors", name).release().ptr();
}

}  // namespace

nb::object exception_object(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (nb::python_error& error) {
    return nb::borrow(error.value());
  } catch (const ApplicationError& error) {
    return nb::borrow(error.exception());
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (const Error& error) {
    set_python_error(error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an unknown error");
  }
  return raised_object();
}

void raise_again(nb::handle exception, nb::handle traceback) {
  if (PyException_SetTraceback(exception.ptr(), traceback.ptr()) != 0) throw nb::python_error();
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nb::python_error();
}

ApplicationError::ApplicationError(nb::python_error& raised)
    : message_(utf8(raised.type().attr("__name__"))),
      exception_(keep_alive(nb::borrow(raised.value()))) {
  const nb::object text = nb::steal(PyObject_Str(raised.value().ptr()));
  if (text.is_valid()) {
    message_ += ": " + utf8(text);
  } else {
    PyErr_Clear();
  }
}

std::string described(nb::handle value) {
  constexpr std::size_t kLongest = 60;
  const bool plain = value.is_none() || PyBool_Check(value.ptr()) || PyLong_Check(value.ptr()) ||
                     PyFloat_Check(value.ptr()) || PyUnicode_Check(value.ptr()) ||
                     PyBytes_Check(value.ptr()) || PyTuple_Check(value.ptr()) ||
                     PyList_Check(value.ptr()) || PyDict_Check(value.ptr());
  if (plain) {
    nb::object text = nb::steal(PyObject_Repr(value.ptr()));
    if (!text.is_valid()) {
      PyErr_Clear();
    } else if (nb::len(text) <= kLongest) {
      return utf8(text);
    }
  }
  const nb::handle type = value.type();
  const std::string module = utf8(nb::str(nb::getattr(type, "__module__", nb::str(""))));
  const std::string name = utf8(nb::str(type.attr("__qualname__")));
  return module.empty() || module == "builtins" ? name : module + '.' + name;
}

void raise_wrong_type(const char* name, const char* wanted, nb::handle value) {
  raise(PyExc_TypeError, std::string(name) + ": expected " + wanted + ", got " + described(value));
}

void raise_if_integer(const char* name, bool is_signed, std::size_t bits, nb::handle value) {
  if (PyBool_Check(value.ptr())) return;
  const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
  if (!number.is_valid()) return PyErr_Clear();
  const bool is_negative = !is_signed && nb::cast<bool>(number.attr("__lt__")(0));
  const std::string got = described(number);
  raise(PyExc_ValueError,
        std::string(name) + ": " +
            (is_negative ? "expected 0 or more, got " + got
                         : got + " is outside of " + std::to_string(bits) + " bits"));
}

void bind_errors() {
  corrupt_error = class_of("CorruptError");
  device_error = class_of("DeviceError");
  cancelled_error = class_of("CancelledError");
  conflict_error = class_of("ConflictError");
  nb::register_exception_translator(translate);
}

}  // namespace headrace::python
