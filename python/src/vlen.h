#pragma once

#include <vector>

#include "common.h"
#include "tensor.h"

namespace headrace::python {

// Elements of variable length as a new ndarray of `numpy_dtype`: of NumPy's strings, or of objects
// (str, bytes, the values of JSON, 1-D arrays).
nb::object vlen_to_ndarray(const Tensor& tensor, nb::handle numpy_dtype);

// The same into `out`, an ndarray of the shape and of `numpy_dtype` or objects; else ValueError.
nb::object vlen_to_output(const Tensor& tensor, nb::object out, nb::handle numpy_dtype);

// What a write takes: whatever NumPy makes an array of `numpy_dtype` of. Elements point into
// Python's objects where they can.
ArrayView vlen_input(nb::handle data, const DType& dtype, nb::handle numpy_dtype);

// One element as a Python object, and the bytes of one.
nb::object vlen_to_python(const VlenElement& element, const DType& dtype);
std::vector<std::byte> vlen_bytes(nb::handle value, const DType& dtype);

}  // namespace headrace::python
