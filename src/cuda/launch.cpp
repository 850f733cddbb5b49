#include <cuda_runtime_api.h>

#include <string>

#include "cuda/check.h"
#include "cuda/device_guard.h"
#include "cuda/queue.h"

namespace headrace::gpu::simt {

void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) check(status, kernel);
}

void allow_shared(const void* entry, unsigned nbytes) {
  HEADRACE_CUDA_CHECK(cudaFuncSetAttribute(
      entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(nbytes)));
}

void* enter_device(const Queue& queue) {
  return new DeviceGuard(static_cast<const CudaQueue&>(queue).device());
}

void leave_device(void* entered) noexcept { delete static_cast<DeviceGuard*>(entered); }

}  // namespace headrace::gpu::simt
