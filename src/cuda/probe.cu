#include "cuda/check.h"
#include "cuda/device_guard.h"
#include "cuda/probe.h"
#include "device/gpu_limits.h"
#include "device/kernel_probe.h"

namespace headrace {
namespace {

// Has code for what every other kernel of the build has code for.
__global__ void probe() {}

int attribute_of(int device, cudaDeviceAttr attribute) {
  int value = 0;
  HEADRACE_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

KernelProbe::Answer ask(int device) {
  const ComputeCapability gpu{attribute_of(device, cudaDevAttrComputeCapabilityMajor),
                              attribute_of(device, cudaDevAttrComputeCapabilityMinor)};
  const std::string missing = why_no_code(gpu, HEADRACE_CUDA_ARCHITECTURES);
  if (!missing.empty()) return {missing, true};
  const DeviceGuard guard(device);
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, probe);
  if (status == cudaSuccess) return {"", true};
  cudaGetLastError();  // an error that is told here is not found again by others
  const bool no_code =
      status == cudaErrorNoKernelImageForDevice || status == cudaErrorUnsupportedPtxVersion ||
      status == cudaErrorInvalidKernelImage || status == cudaErrorJitCompilerNotFound;
  return {
      std::string(
          "it has no kernels of this build (CMAKE_CUDA_ARCHITECTURES=" HEADRACE_CUDA_ARCHITECTURES
          "): ") +
          cudaGetErrorString(status),
      no_code};
}

}  // namespace

std::string why_no_kernels(int device) {
  // Never destroyed: devices may be asked for at the very end.
  static auto* known = new KernelProbe;
  return known->why_not(device, [](int index) { return ask(index); });
}

}  // namespace headrace
