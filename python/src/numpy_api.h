#pragma once

// The few NumPy objects that are called often, fetched once. No NumPy header is needed to build.

#include "common.h"

namespace headrace::python {

struct NumPy {
  PyObject* empty;
  PyObject* asarray;
  PyObject* ndarray;
  PyObject* dtype;
  PyObject* empty_tuple;
  PyObject* array_struct_name;  // "__array_struct__"
  PyObject* dtype_name;         // "dtype"
};

// Imports NumPy on the first call. The references live as long as the process.
const NumPy& numpy();

// The C struct behind `__array_struct__`:
// https://numpy.org/doc/stable/reference/arrays.interface.html#c-struct-access
struct ArrayInterface {
  int two;
  int nd;
  char typekind;
  int itemsize;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;
  void* data;
  PyObject* descr;

  static constexpr int kWriteable = 0x400;
};

// The capsule keeps `*interface` alive; nothing when the object has no `__array_struct__`.
nb::object array_interface(nb::handle object, const ArrayInterface** interface);

}  // namespace headrace::python
