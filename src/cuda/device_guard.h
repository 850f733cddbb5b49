#pragma once

#include <cuda_runtime_api.h>

namespace headrace {

// Makes a CUDA device current for the calling thread, and what was current before again at the end.
// What the thread does in the scope breaks no capture: while a CUDA graph is made in the mode
// "global", as torch makes them, another thread that queries an event or allocates fails and spoils
// the graph, and so does the capturing thread itself, unless they say that they have nothing to do
// with it.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#prohibited-and-unhandled-operations
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  void make_current(int device);
  void make_before_current();
  bool exchange_mode();

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  void* before_ = nullptr;
  bool changed_ = false;
  bool is_relaxed_ = false;
};

}  // namespace headrace
