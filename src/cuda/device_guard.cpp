#include "cuda/device_guard.h"

#include <cuda.h>

#include <array>
#include <atomic>
#include <string>

#include "cuda/check.h"

namespace headrace {
namespace {

// By the driver's calls: cudaSetDevice(before) would make a context on a device that the program
// has not used yet, some hundred megabytes of its memory.
struct Driver {
  CUresult (*get)(CUcontext*) = nullptr;
  CUresult (*set)(CUcontext) = nullptr;
  CUresult (*get_device)(CUdevice*, int) = nullptr;
  CUresult (*retain_primary)(CUcontext*, CUdevice) = nullptr;
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

const Driver& driver() {
  static const Driver calls = [] {
    Driver found;
    find("cuCtxGetCurrent", found.get);
    find("cuCtxSetCurrent", found.set);
    find("cuDeviceGet", found.get_device);
    find("cuDevicePrimaryCtxRetain", found.retain_primary);
    return found;
  }();
  return calls;
}

void check_driver(CUresult status, const char* call) {
  if (status != CUDA_SUCCESS)
    throw Error(ErrorCode::device,
                std::string("CUDA: ") + call + ": error " + std::to_string(status));
}

// What the runtime works in: our streams, events and memory are of this context, and a call in
// another one of the same device, as PyCUDA and green contexts make them, refuses them. It is
// retained once for each device and never released.
CUcontext primary_of(int device) {
  constexpr int kMost = 64;  // devices that are remembered
  static std::array<std::atomic<CUcontext>, kMost> known{};
  const bool remembered = device >= 0 && device < kMost;
  if (remembered)
    if (CUcontext context = known[static_cast<std::size_t>(device)]) return context;
  CUdevice handle = 0;
  CUcontext context = nullptr;
  check_driver(driver().get_device(&handle, device), "cuDeviceGet");
  check_driver(driver().retain_primary(&context, handle), "cuDevicePrimaryCtxRetain");
  if (remembered) known[static_cast<std::size_t>(device)] = context;
  return context;
}

}  // namespace

DeviceGuard::DeviceGuard(int device) {
  try {
    make_current(device);
  } catch (...) {
    make_before_current();
    throw;
  }
  is_relaxed_ = exchange_mode();
}

DeviceGuard::~DeviceGuard() {
  if (is_relaxed_) exchange_mode();
  make_before_current();
}

void DeviceGuard::make_current(int device) {
  CUcontext before = nullptr;
  if (driver().get(&before) != CUDA_SUCCESS) before = nullptr;
  if (before && before == primary_of(device)) return;
  HEADRACE_CUDA_CHECK(cudaSetDevice(device));
  before_ = before;
  changed_ = true;
  if (!before) return;
  // The runtime takes any context of the device for the right one.
  CUcontext now = nullptr;
  check_driver(driver().get(&now), "cuCtxGetCurrent");
  if (now != primary_of(device)) check_driver(driver().set(primary_of(device)), "cuCtxSetCurrent");
}

void DeviceGuard::make_before_current() {
  if (changed_) driver().set(static_cast<CUcontext>(before_));
}

// Failing, it changes nothing: of what is wrong with the driver the calls in the scope tell.
bool DeviceGuard::exchange_mode() {
  const cudaError_t status = cudaThreadExchangeStreamCaptureMode(&mode_);
  ignore(status);
  return status == cudaSuccess;
}

}  // namespace headrace
