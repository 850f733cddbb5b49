#pragma once

// What every binding file shares: Python's C API through nanobind, and the order of binding.

#include <headrace/headrace.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gil.h"

namespace headrace::python {

void bind_errors();
void bind_tensor(nb::module_& m);
void bind_device_array(nb::module_& m);
void bind_future(nb::module_& m);
void bind_store(nb::module_& m);
void bind_python_store(nb::module_& m);
void add_python_codecs();
void bind_array(nb::module_& m);
void bind_arrow_device(nb::module_& m);
void bind_group(nb::module_& m);
void bind_create(nb::module_& m);
void bind_codecs(nb::module_& m);
void bind_config(nb::module_& m);
void bind_rechunk(nb::module_& m);
void bind_trace(nb::module_& m);
void bind_signatures(nb::module_& m);
void bind_shm(nb::module_& m);
void bind_loader(nb::module_& m);
void bind_cells(nb::module_& m);

// A new reference, or the Python error that is set.
inline nb::object steal_or_throw(PyObject* result) {
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

[[noreturn]] inline void raise(PyObject* exception, const std::string& message) {
  PyErr_SetString(exception, message.c_str());
  throw nb::python_error();
}

// Names in a store, which need not be UTF-8: other bytes are lone surrogates in Python, as in
// os.listdir(), and come back as they were.
nb::str name_to_python(const std::string& name);
std::string name_from_python(nb::handle name);

nb::object shape_tuple(const Shape& shape);
nb::object shape_tuples(const std::vector<Shape>& shapes);
// An int, no bool; then one or a sequence of them.
std::int64_t extent_from_python(nb::handle value, const char* what);
Shape shape_from_python(nb::handle value, const char* what);
// {"zstd": "libzstd"} or None.
Implementations implementations_from_python(nb::handle value);
// A name, or None for the configured default.
Device device_from_python(nb::handle name);
// The attribute of a module of this package, imported when first asked for.
nb::object package_attribute(const char* module, const char* name);

}  // namespace headrace::python
