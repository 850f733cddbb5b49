#include "cuda/queue.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "cuda/check.h"
#include "cuda/copy_from_host.h"
#include "cuda/device_guard.h"
#include "cuda/memory.h"
#include "device/backend.h"

namespace headrace {
namespace {

// From pageable memory the driver waits for the stream before it copies more than 64 KiB: such
// uploads go by way of pinned memory, up to a size where the wait costs little.
constexpr std::size_t kMinStaged = (64 << 10) + 1, kMaxStaged = 16 << 20;

bool is_staged(std::size_t nbytes) { return nbytes >= kMinStaged && nbytes <= kMaxStaged; }

unsigned attribute_of(int device, cudaDeviceAttr attribute) {
  int value = 0;
  HEADRACE_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  return static_cast<unsigned>(value);
}

}  // namespace

// Of the default stream CUDA says it by an error.
void check_uncaptured(int device, cudaStream_t stream) {
  const DeviceGuard guard(device);
  cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
  const cudaError_t status = cudaStreamIsCapturing(stream, &found);
  ignore(status);
  if (status == cudaErrorStreamCaptureImplicit) refuse_capture();
  HEADRACE_CUDA_CHECK(status);
  if (found != cudaStreamCaptureStatusNone) refuse_capture();
}

class CudaMark final : public Mark {
 public:
  explicit CudaMark(int device) : device_(device) {
    const DeviceGuard guard(device_);
    HEADRACE_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  explicit CudaMark(const CudaQueue& queue) : CudaMark(queue.device()) { record(queue.stream()); }
  // An event that is waited for may be destroyed: the wait stays.
  ~CudaMark() override {
    try {
      const DeviceGuard guard(device_);
      ignore(cudaEventDestroy(event_));
    } catch (const Error&) {
      // The driver is gone, at the end of the process, and the event with it.
    }
  }
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;

  // Here, in the work of a stream of the device.
  void record(cudaStream_t stream) {
    const DeviceGuard guard(device_);
    HEADRACE_CUDA_CHECK(cudaEventRecord(event_, stream));
  }

  cudaEvent_t event() const { return event_; }
  // Awake: with cudaEventBlockingSync reads of one chunk took 60 to 110 us more, even when a thread
  // slept only after 100 us, and long reads spared less than half a core (H100).
  void wait() override {
    const DeviceGuard guard(device_);
    HEADRACE_CUDA_CHECK(cudaEventSynchronize(event_));
  }
  bool is_reached() const override {
    const DeviceGuard guard(device_);
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // or the next launch would find it
      return false;
    }
    HEADRACE_CUDA_CHECK(status);
    return true;
  }

 private:
  int device_;
  cudaEvent_t event_ = nullptr;
};

CudaQueue::CudaQueue(int device)
    : device_(device),
      own_(take_stream(device)),
      stream_(own_->stream()),
      processors_(attribute_of(device, cudaDevAttrMultiProcessorCount)),
      tuned_for_(processors_),
      shared_nbytes_(attribute_of(device, cudaDevAttrMaxSharedMemoryPerBlockOptin)) {}

CudaQueue::CudaQueue(int device, cudaStream_t stream)
    : device_(device),
      stream_(stream),
      processors_(attribute_of(device, cudaDevAttrMultiProcessorCount)),
      tuned_for_(processors_),
      shared_nbytes_(attribute_of(device, cudaDevAttrMaxSharedMemoryPerBlockOptin)) {}

CudaQueue::~CudaQueue() {
  for (Staged& staged : staged_) {
    try {
      staged.copied->wait();
    } catch (const Error&) {
      // Nothing reads the block any more.
    }
  }
  if (own_) give_stream(device_, std::move(own_));
}

void* CudaQueue::allocate(std::size_t nbytes) {
  return own_ ? own_->allocate(nbytes) : allocate_device(device_, nbytes, stream_);
}

void CudaQueue::free(void* memory) noexcept {
  own_ ? own_->free(memory) : free_device(device_, memory, stream_);
}

// From pageable memory the runtime copies through its own pinned buffer before it returns; from
// pinned memory it does not.
void CudaQueue::upload(void* target, const void* source, std::size_t nbytes) {
  if (nbytes == 0) return;
  if (is_staged(nbytes))
    return upload_made(target, nbytes, [&](void* block) { std::memcpy(block, source, nbytes); });
  const DeviceGuard guard(device_);
  cudaPointerAttributes attributes{};
  HEADRACE_CUDA_CHECK(cudaPointerGetAttributes(&attributes, source));
  HEADRACE_CUDA_CHECK(cudaMemcpyAsync(target, source, nbytes, cudaMemcpyHostToDevice, stream_));
  if (attributes.type != cudaMemoryTypeUnregistered)
    HEADRACE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void CudaQueue::upload_made(void* target, std::size_t nbytes, FunctionRef<void(void*)> make) {
  if (!is_staged(nbytes)) {
    const auto source = std::make_unique_for_overwrite<std::byte[]>(nbytes);
    make(source.get());
    return upload(target, source.get(), nbytes);
  }
  const DeviceGuard guard(device_);
  drop_copied();
  Staged staged{allocate_pinned_host(device_, nbytes), std::make_unique<CudaMark>(device_)};
  make(staged.block.get());
  staged_.push_back(std::move(staged));
  try {
    const void* const source = staged_.back().block.get();
    if (reinterpret_cast<std::uintptr_t>(target) % 16 == 0) {
      copy_from_host(*this, target, source, nbytes);
    } else {
      upload_pinned(target, source, nbytes);
    }
    staged_.back().copied->record(stream_);
  } catch (...) {
    // Nothing tells when the block is copied, and whoever takes it next would write into it.
    ignore(cudaStreamSynchronize(stream_));
    staged_.pop_back();
    throw;
  }
}

void CudaQueue::drop_copied() {
  while (!staged_.empty() && staged_.front().copied->is_reached()) staged_.pop_front();
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
  CudaMark mark(from);
  wait_for(mark);
}

void CudaQueue::wait_for(Mark& mark) {
  const DeviceGuard guard(device_);
  HEADRACE_CUDA_CHECK(cudaStreamWaitEvent(stream_, static_cast<CudaMark&>(mark).event(), 0));
}

void CudaQueue::notify(std::function<void()> done) {
  const DeviceGuard guard(device_);
  auto kept = std::make_unique<std::function<void()>>(std::move(done));
  const auto call = [](void* given) {
    const std::unique_ptr<std::function<void()>> function(
        static_cast<std::function<void()>*>(given));
    try {
      (*function)();
    } catch (...) {
      // The driver, whose thread this is, could not catch it, and there is nobody to tell.
    }
  };
  HEADRACE_CUDA_CHECK(cudaLaunchHostFunc(stream_, call, kept.get()));
  static_cast<void>(kept.release());
}

}  // namespace headrace
