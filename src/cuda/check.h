#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "headrace/error.h"

namespace headrace {

// Throws `device` (`out_of_memory`, or `unsupported` during a capture into a graph, where that is
// the reason) with the call and CUDA's own words.
inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that is told here is not found again by the next launch
  const bool is_of_capture =
      status >= cudaErrorStreamCaptureUnsupported && status <= cudaErrorStreamCaptureWrongThread;
  const ErrorCode code = status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory
                         : is_of_capture                     ? ErrorCode::unsupported
                                                             : ErrorCode::device;
  throw Error(code,
              std::string("CUDA: ") + call + ": " + cudaGetErrorString(status) + " (" +
                  cudaGetErrorName(status) + ")");
}

// Of a call whose failure changes nothing for the caller.
inline void ignore(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();
}

}  // namespace headrace

#define HEADRACE_CUDA_CHECK(call) ::headrace::check((call), #call)
