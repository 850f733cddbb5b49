#include "cuda/queue.h"

#include <cstring>

#include "cuda/check.h"
#include "cuda/device_guard.h"
#include "cuda/memory.h"

namespace headrace {
namespace {

// The driver puts copies up to this size from pageable memory into the commands of a stream.
constexpr std::size_t kInCommand = 64 << 10;
constexpr std::size_t kMostStaged = std::size_t{16} << 20;

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
  bool done() const {
    const DeviceGuard guard(device_);
    const cudaError_t status = cudaEventQuery(event_);
    if (status != cudaErrorNotReady) HEADRACE_CUDA_CHECK(status);
    return status == cudaSuccess;
  }
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
  try {
    if (!staged_.empty()) synchronize();
  } catch (const Error&) {
    // The device failed, and uses nothing any more.
  }
  if (owned_) give_stream(device_, stream_);
}

void* CudaQueue::allocate(std::size_t nbytes) { return allocate_device(device_, nbytes, stream_); }

void CudaQueue::free(void* memory) noexcept { free_device(device_, memory, stream_); }

// From pageable memory the runtime copies through its own pinned buffer before it returns; from
// pinned memory it does not.
void CudaQueue::upload(void* target, const void* source, std::size_t nbytes) {
  if (nbytes == 0) return;
  if (nbytes > kInCommand && nbytes <= kMostStaged) return upload_staged(target, source, nbytes);
  const DeviceGuard guard(device_);
  cudaPointerAttributes attributes{};
  HEADRACE_CUDA_CHECK(cudaPointerGetAttributes(&attributes, source));
  HEADRACE_CUDA_CHECK(cudaMemcpyAsync(target, source, nbytes, cudaMemcpyHostToDevice, stream_));
  if (attributes.type != cudaMemoryTypeUnregistered)
    HEADRACE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

// The runtime would wait for what the stream was given before.
void CudaQueue::upload_staged(void* target, const void* source, std::size_t nbytes) {
  while (!staged_.empty() && static_cast<const CudaMark&>(*staged_.front().first).done())
    staged_.pop_front();
  const std::shared_ptr<std::byte> copy = allocate_pinned_host(device_, nbytes);
  std::memcpy(copy.get(), source, nbytes);
  upload_pinned(target, copy.get(), nbytes);
  staged_.emplace_back(mark(), copy);
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
  staged_.clear();
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
