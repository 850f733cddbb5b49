#pragma once

#include <memory>

#include "common.h"

namespace headrace::python {

// headrace.DeviceArray: memory of a device, and a view of it.
struct PyDeviceArray {
  std::shared_ptr<void> owner;
  TensorView view;
  nb::object numpy_dtype;
  // Of all views of the memory: who writes it through one gives all of them the new one.
  std::shared_ptr<Ready> ready = std::make_shared<Ready>();
};

// Waits without the GIL, and handles signals meanwhile; throws what the work found wrong.
// TimeoutError after `timeout` seconds. By value: without the GIL, the array may get another one.
void wait_until_ready(Ready ready, nb::handle timeout = nb::none());

// Before somebody writes the array: waits as above, and forgets what was wrong with what it held.
void wait_until_writable(PyDeviceArray& array);

PyDeviceArray device_array(Tensor&& tensor, nb::handle numpy_dtype);

}  // namespace headrace::python
