#pragma once

#include <memory>

#include "common.h"

namespace headrace::python {

// headrace.DeviceArray: memory of a device, and a view of it.
struct PyDeviceArray {
  std::shared_ptr<void> owner;
  TensorView view;
  nb::object numpy_dtype;
};

PyDeviceArray device_array(Tensor&& tensor, nb::handle numpy_dtype);

}  // namespace headrace::python
