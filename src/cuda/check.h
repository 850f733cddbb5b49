#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "headrace/error.h"

namespace headrace {

// Throws `device` (`out_of_memory` where that is the reason) with the call and CUDA's own words.
inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that is told here is not found again by the next launch
  const ErrorCode code =
      status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device;
  throw Error(code,
              std::string("CUDA: ") + call + ": " + cudaGetErrorString(status) + " (" +
                  cudaGetErrorName(status) + ")");
}

}  // namespace headrace

#define HEADRACE_CUDA_CHECK(call) ::headrace::check((call), #call)
