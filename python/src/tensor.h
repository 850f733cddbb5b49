#pragma once

#include <optional>

#include "common.h"

namespace headrace::python {

class ProducerStreams;

// A view of memory that a Python object owns, on any device.
struct ArrayView {
  TensorView view;
  nb::object keep_alive;
};

// A new C-ordered ndarray and its memory.
ArrayView empty_ndarray(const Shape& shape, std::size_t itemsize, nb::handle numpy_dtype);

// The tensor's memory as an ndarray, without a copy.
nb::object to_ndarray(Tensor&& tensor, nb::handle numpy_dtype);

// Where a read puts its result: `out` is a DeviceArray, an ndarray, a DLPack object, one with
// __cuda_array_interface__ or a writable buffer. ValueError when its dtype is another or it is
// read-only. `device` is where the result is wanted; `stream`, where work is to be ordered: a
// producer with a stream of its own sets it when it is not set. `waited`: of the call.
ArrayView output_view(nb::handle out,
                      const DType& dtype,
                      nb::handle numpy_dtype,
                      const Device& device,
                      Stream& stream,
                      ProducerStreams& waited);

// What a write takes: such an object of this dtype as it is, anything else converted by NumPy.
// Memory of a device must have the dtype.
ArrayView input_view(nb::handle data, const DType& dtype, nb::handle numpy_dtype);

// Memory that `object` exports by DLPack or __cuda_array_interface__, of any type and shape;
// nothing for objects with a buffer on the host. `device`: where the latter lies, which it does not
// tell. `stream` and `waited` as above.
std::optional<ArrayView> exported_view(nb::handle object,
                                       bool writable,
                                       const char* what,
                                       const Device& device,
                                       Stream& stream,
                                       ProducerStreams& waited);

// A 0-dimensional ndarray as a NumPy scalar.
nb::object unboxed(nb::handle array);

}  // namespace headrace::python
