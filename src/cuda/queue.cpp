#include "cuda/queue.h"

#include "cuda/check.h"
#include "cuda/device_guard.h"
#include "cuda/memory.h"

namespace headrace {
namespace {

unsigned processor_count(int device) {
  int count = 0;
  HEADRACE_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return static_cast<unsigned>(count);
}

class CudaMark final : public Mark {
 public:
  explicit CudaMark(const CudaQueue& queue) : device_(queue.device()) {
    const DeviceGuard guard(device_);
    HEADRACE_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    const cudaError_t status = cudaEventRecord(event_, queue.stream());
    if (status != cudaSuccess) cudaEventDestroy(event_);
    HEADRACE_CUDA_CHECK(status);
  }
  // An event that is waited for may be destroyed: the wait stays.
  ~CudaMark() override {
    try {
      const DeviceGuard guard(device_);
      cudaEventDestroy(event_);
    } catch (const Error&) {
      // The driver is gone, at the end of the process, and the event with it.
    }
  }
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;

  cudaEvent_t event() const { return event_; }
  void wait() override {
    const DeviceGuard guard(device_);
    HEADRACE_CUDA_CHECK(cudaEventSynchronize(event_));
  }

 private:
  int device_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace

CudaQueue::CudaQueue(int device)
    : device_(device),
      stream_(take_stream(device)),
      owned_(true),
      processors_(processor_count(device)) {}

CudaQueue::CudaQueue(int device, cudaStream_t stream)
    : device_(device), stream_(stream), owned_(false), processors_(processor_count(device)) {}

CudaQueue::~CudaQueue() {
  if (owned_) give_stream(device_, stream_);
}

void* CudaQueue::allocate(std::size_t nbytes) { return allocate_device(device_, nbytes, stream_); }

void CudaQueue::free(void* memory) noexcept { free_device(device_, memory, stream_); }

// From pageable memory the runtime copies through its own pinned buffer before it returns; from
// pinned memory it does not.
void CudaQueue::upload(void* target, const void* source, std::size_t nbytes) {
  if (nbytes == 0) return;
  const DeviceGuard guard(device_);
  cudaPointerAttributes attributes{};
  HEADRACE_CUDA_CHECK(cudaPointerGetAttributes(&attributes, source));
  HEADRACE_CUDA_CHECK(cudaMemcpyAsync(target, source, nbytes, cudaMemcpyHostToDevice, stream_));
  if (attributes.type != cudaMemoryTypeUnregistered)
    HEADRACE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void CudaQueue::upload_pinned(void* target, const void* source, std::size_t nbytes) {
  if (nbytes == 0) return;
  const DeviceGuard guard(device_);
  HEADRACE_CUDA_CHECK(cudaMemcpyAsync(target, source, nbytes, cudaMemcpyHostToDevice, stream_));
}

void CudaQueue::download(void* target, const void* source, std::size_t nbytes) {
  if (nbytes == 0) return;
  const DeviceGuard guard(device_);
  HEADRACE_CUDA_CHECK(cudaMemcpyAsync(target, source, nbytes, cudaMemcpyDeviceToHost, stream_));
}

void CudaQueue::copy(void* target, const void* source, std::size_t nbytes) {
  if (nbytes == 0) return;
  const DeviceGuard guard(device_);
  HEADRACE_CUDA_CHECK(cudaMemcpyAsync(target, source, nbytes, cudaMemcpyDeviceToDevice, stream_));
}

void CudaQueue::fill(void* target, std::uint8_t value, std::size_t nbytes) {
  if (nbytes == 0) return;
  const DeviceGuard guard(device_);
  HEADRACE_CUDA_CHECK(cudaMemsetAsync(target, value, nbytes, stream_));
}

void CudaQueue::synchronize() {
  const DeviceGuard guard(device_);
  HEADRACE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

std::unique_ptr<Mark> CudaQueue::mark() { return std::make_unique<CudaMark>(*this); }

void CudaQueue::wait_for(Queue& other) {
  const auto& from = static_cast<CudaQueue&>(other);
  if (from.stream_ == stream_) return;
  const CudaMark mark(from);
  const DeviceGuard guard(device_);
  HEADRACE_CUDA_CHECK(cudaStreamWaitEvent(stream_, mark.event(), 0));
}

}  // namespace headrace
