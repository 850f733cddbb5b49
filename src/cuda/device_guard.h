#pragma once

namespace headrace {

// Makes a CUDA device current for the calling thread, and what was current before again at the end.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  void* before_ = nullptr;
  bool changed_ = false;
};

}  // namespace headrace
