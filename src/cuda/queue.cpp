#include "cuda/queue.h"

#include "cuda/check.h"
#include "kernels/kernels.h"

namespace headrace {
namespace {

unsigned processor_count(int device) {
  int count = 0;
  HEADRACE_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return static_cast<unsigned>(count);
}

}  // namespace

CudaQueue::CudaQueue(int device) : CudaQueue(device, nullptr) {
  HEADRACE_CUDA_CHECK(cudaSetDevice(device));
  HEADRACE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  owned_ = true;
}

CudaQueue::CudaQueue(int device, cudaStream_t stream)
    : device_(device), stream_(stream), owned_(false), processors_(processor_count(device)) {}

CudaQueue::~CudaQueue() {
  if (owned_) cudaStreamDestroy(stream_);
}

void* CudaQueue::allocate(std::size_t nbytes) {
  void* memory = nullptr;
  HEADRACE_CUDA_CHECK(cudaMallocAsync(&memory, nbytes + (nbytes == 0), stream_));
  return memory;
}

void CudaQueue::free(void* memory) noexcept { cudaFreeAsync(memory, stream_); }

// From pageable memory the runtime copies through its own pinned buffer before it returns.
void CudaQueue::upload(void* target, const void* source, std::size_t nbytes) {
  if (nbytes)
    HEADRACE_CUDA_CHECK(cudaMemcpyAsync(target, source, nbytes, cudaMemcpyHostToDevice, stream_));
}

void CudaQueue::download(void* target, const void* source, std::size_t nbytes) {
  if (nbytes)
    HEADRACE_CUDA_CHECK(cudaMemcpyAsync(target, source, nbytes, cudaMemcpyDeviceToHost, stream_));
}

void CudaQueue::copy(void* target, const void* source, std::size_t nbytes) {
  if (nbytes)
    HEADRACE_CUDA_CHECK(cudaMemcpyAsync(target, source, nbytes, cudaMemcpyDeviceToDevice, stream_));
}

void CudaQueue::fill(void* target, std::uint8_t value, std::size_t nbytes) {
  if (nbytes) HEADRACE_CUDA_CHECK(cudaMemsetAsync(target, value, nbytes, stream_));
}

void CudaQueue::synchronize() { HEADRACE_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

std::unique_ptr<Queue> make_gpu_queue(int device) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || device >= count) return nullptr;
  return std::make_unique<CudaQueue>(device);
}

}  // namespace headrace
