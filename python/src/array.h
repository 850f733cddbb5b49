#pragma once

// headrace.Array is bound in three files: reading, writing, and the protocols of Python and DLPack.

#include "common.h"
#include "handles.h"
#include "selection.h"

namespace headrace::python {

// The key of an array, which may be a dict by dimension.
ParsedKey parse_key(PyArray& self, nb::handle key, KeyKind kind);
void setitem(PyArray& self, nb::handle key, nb::handle value, KeyKind kind);
void bind_array_write(nb::class_<PyArray>& cls);
void bind_array_protocols(nb::class_<PyArray>& cls);

}  // namespace headrace::python
