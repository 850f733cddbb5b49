#pragma once

#include <headrace/dlpack.h>

#include "common.h"

namespace headrace::python {

// A capsule that owns `managed`; of before DLPack 1.0 when `max_version` is None or below it.
nb::object dlpack_capsule(DLManagedTensorVersioned* managed, nb::handle max_version);
nb::object versioned_capsule(DLManagedTensorVersioned* managed);

DLDeviceType dlpack_type_of(const Device& device);

// What __dlpack_device__ gives.
nb::object dlpack_device_of(const Device& device);

// BufferError for types that DLPack has none for.
void check_dlpack_type(const DType& dtype);

// None, a raw handle, or a stream of PyTorch, CuPy or whatever has __cuda_stream__.
Stream stream_from_python(nb::handle stream);

}  // namespace headrace::python
