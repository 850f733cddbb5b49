#include "device/backend.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <fstream>

#include "cuda/check.h"
#include "cuda/device_guard.h"
#include "cuda/engine.h"
#include "cuda/mapped_file.h"
#include "cuda/memory.h"
#include "cuda/nvcomp.h"
#include "cuda/nvtx.h"
#include "cuda/probe.h"
#include "cuda/queue.h"
#include "device/cuda_names.h"
#include "device/cufile.h"
#include "device/kept_frees.h"
#include "device/user_memory.h"

namespace headrace {
namespace {

cudaDeviceProp properties(int index) {
  cudaDeviceProp found{};
  HEADRACE_CUDA_CHECK(cudaGetDeviceProperties(&found, index));
  return found;
}

class CudaBackend final : public Backend {
 public:
  int device_count() const override {
    int count = 0;
    const bool good = cudaGetDeviceCount(&count) == cudaSuccess;
    if (!good) cudaGetLastError();  // an error that is told here is not found again by others
    return good ? count : 0;
  }

  std::string why_not(int index) const override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) {
      cudaGetLastError();
      const std::string text = std::string("cudaGetDeviceCount: ") + cudaGetErrorString(status);
      // Without a driver its version is 0, and the error says that it is too old.
      int driver = 0;
      const bool is_none = cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0;
      return is_none ? "no driver of NVIDIA's is installed; " + text : text;
    }
    if (index >= 0 && index < count) return why_no_kernels(index);
    return "there " + std::string(count == 1 ? "is 1 CUDA device"
                                             : "are " + std::to_string(count) + " CUDA devices");
  }

  std::string device_name(int index) const override { return properties(index).name; }
  std::size_t memory_nbytes(int index) const override { return properties(index).totalGlobalMem; }
  std::string driver(int) const override {
    int version = 0;
    HEADRACE_CUDA_CHECK(cudaDriverGetVersion(&version));
    std::ifstream file("/proc/driver/nvidia/version");
    std::string line;
    std::getline(file, line);  // nothing where there is no such file
    return "CUDA " + std::to_string(version) + (line.empty() ? "" : ", " + line);
  }
  std::span<const int> near_processors(int index) const override {
    return near_host(index).processors;
  }
  std::string_view own_name() const override { return cuda_names::kOwnName; }
  const Kernels& kernels() const override { return gpu_kernels(); }
  std::span<const DecoderLibrary> libraries() const override {
    static constexpr DecoderLibrary kLibraries[] = {
        {cuda_names::kNvcomp, cuda_names::kNvcompCodecs, nvcomp_kernels, nvcomp_why_not},
        {cuda_names::kEngine, cuda_names::kEngineCodecs, engine_kernels, engine_why_not}};
    return kLibraries;
  }

  std::unique_ptr<Queue> make_queue(int index) override {
    show_spans_to_profiler();
    free_kept(Device::cuda(index));
    return std::make_unique<CudaQueue>(index);
  }
  std::unique_ptr<Queue> wrap_stream(int index, void* stream) override {
    const auto native = stream ? static_cast<cudaStream_t>(stream) : cudaStreamLegacy;
    check_uncaptured(index, native);
    return std::make_unique<CudaQueue>(index, native);
  }

  std::shared_ptr<void> allocate(Queue& queue, std::size_t nbytes) override {
    // Not from what the stream keeps: results are freed in the order of another one.
    const auto& cuda = static_cast<CudaQueue&>(queue);
    return {allocate_device(cuda.device(), nbytes, cuda.stream()),
            [index = cuda.device()](void* memory) { free_result(index, memory); }};
  }
  void set_allocator(int index, const Allocator& allocator) override {
    user_memory().set(index, allocator);
  }
  std::shared_ptr<std::byte> allocate_pinned(int index, std::size_t nbytes) override {
    return allocate_pinned_host(index, nbytes);
  }
  std::shared_ptr<void> pin(int index, void* data, std::size_t nbytes) override {
    const DeviceGuard guard(index);
    HEADRACE_CUDA_CHECK(cudaHostRegister(data, nbytes, cudaHostRegisterPortable));
    return {data, [index, owner = getpid()](void* memory) { unpin(index, owner, memory); }};
  }
  void with_device(int index, FunctionRef<void()> body) override {
    const DeviceGuard guard(index);
    body();
  }

  DirectFiles direct_files() const override { return cufile(Device::Type::cuda); }
  std::unique_ptr<DirectFile> open_direct(int fd, std::string path) const override {
    return std::make_unique<CufileFile>(cufile(Device::Type::cuda), fd, std::move(path));
  }
  std::shared_ptr<const MappedFile> map_file(int index,
                                             int fd,
                                             std::uint64_t offset,
                                             std::size_t nbytes) const override {
    return map_file_for(index, fd, offset, nbytes);
  }
};

}  // namespace

Backend& cuda_backend() {
  static CudaBackend backend;
  return backend;
}

std::unique_ptr<Queue> make_gpu_queue(int device) {
  if (!cuda_backend().why_not(device).empty()) return nullptr;
  return std::make_unique<CudaQueue>(device);
}

}  // namespace headrace
