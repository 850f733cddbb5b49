#include <cuda_runtime_api.h>

#include <string>

#include "cuda/check.h"

namespace headrace::gpu::simt {

void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) check(status, kernel);
}

void allow_shared(const void* entry, unsigned nbytes) {
  HEADRACE_CUDA_CHECK(cudaFuncSetAttribute(
      entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(nbytes)));
}

}  // namespace headrace::gpu::simt
