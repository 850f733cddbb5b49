#pragma once

#include <cuda_runtime_api.h>

namespace headrace {

// What the calling thread does in its scope breaks no capture of another one. While a thread makes
// a CUDA graph in the mode "global", as torch does, a query of an event by any thread fails and
// spoils the graph, unless that thread says that it has nothing to do with it.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#prohibited-and-unhandled-operations
class RelaxedCapture {
 public:
  RelaxedCapture() { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  // Failing, it changes nothing: of what is wrong with the driver the call in the scope tells.
  void exchange() {
    if (cudaThreadExchangeStreamCaptureMode(&mode_) != cudaSuccess) cudaGetLastError();
  }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace headrace
