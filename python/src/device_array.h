#pragma once

#include <memory>

#include "common.h"

namespace headrace::python {

// headrace.DeviceArray: memory of a device, and a view of it.
struct PyDeviceArray {
  std::shared_ptr<void> owner;
  TensorView view;
  nb::object numpy_dtype;
  Ready ready{};
};

// Waits without the GIL, and handles signals meanwhile; throws what the work found wrong.
// TimeoutError after `timeout` seconds.
void wait_until_ready(const Ready& ready, nb::handle timeout = nb::none());

PyDeviceArray device_array(Tensor&& tensor, nb::handle numpy_dtype);

}  // namespace headrace::python
