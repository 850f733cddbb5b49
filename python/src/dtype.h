#pragma once

#include "common.h"

namespace headrace::python {

// The np.dtype of `dtype`, in native byte order. ImportError when it takes ml_dtypes, which is
// not installed.
nb::object numpy_dtype(const DType& dtype);

// Anything np.dtype() takes, and the Zarr v3 names. The byte order of `object` is not kept
// (`big_endian` tells it); fields of structures keep theirs.
DType dtype_from_python(nb::handle object, bool* big_endian = nullptr);

}  // namespace headrace::python
