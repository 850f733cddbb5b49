#include "cuda/device_guard.h"

#include <cuda.h>

#include "cuda/check.h"

namespace headrace {
namespace {

// By the driver's calls: cudaSetDevice(before) would make a context on a device that the program
// has not used yet, some hundred megabytes of its memory.
struct CurrentContext {
  CUresult (*get)(CUcontext*) = nullptr;
  CUresult (*set)(CUcontext) = nullptr;
};

template <typename Function>
void find(const char* name, Function*& function) {
  constexpr unsigned kVersion = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  HEADRACE_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result));
  if (result != cudaDriverEntryPointSuccess)
    throw Error(ErrorCode::device, std::string("CUDA: the driver has no ") + name);
  function = reinterpret_cast<Function*>(found);
}

const CurrentContext& current_context() {
  static const CurrentContext calls = [] {
    CurrentContext found;
    find("cuCtxGetCurrent", found.get);
    find("cuCtxSetCurrent", found.set);
    return found;
  }();
  return calls;
}

}  // namespace

DeviceGuard::DeviceGuard(int device) {
  CUcontext before = nullptr;
  if (current_context().get(&before) != CUDA_SUCCESS) before = nullptr;
  int now = -1;
  if (before && cudaGetDevice(&now) == cudaSuccess && now == device) return;
  HEADRACE_CUDA_CHECK(cudaSetDevice(device));
  before_ = before;
  changed_ = true;
}

DeviceGuard::~DeviceGuard() {
  if (changed_) current_context().set(static_cast<CUcontext>(before_));
}

}  // namespace headrace
