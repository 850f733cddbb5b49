#include "cuda/own_stream.h"

#include <map>
#include <utility>
#include <vector>

#include "base/fork_mutex.h"
#include "cuda/check.h"
#include "cuda/device_guard.h"
#include "cuda/memory.h"
#include "device/user_memory.h"

namespace headrace {
namespace {

constexpr std::size_t kMaxKeptBlock = 32 << 20, kMaxKept = 64 << 20;

struct IdleStreams {
  ForkMutex mutex;
  std::map<int, std::vector<std::unique_ptr<OwnStream>>> of_device GUARDED_BY(mutex);

  static IdleStreams& get() {
    static auto* streams = new IdleStreams;  // never destroyed: the driver may be gone before
    return *streams;
  }
};

}  // namespace

OwnStream::OwnStream(int device) : device_(device), blocks_(kMaxKeptBlock, kMaxKept) {
  const DeviceGuard guard(device);
  HEADRACE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

void* OwnStream::allocate(std::size_t nbytes) {
  const auto fresh = [this](std::size_t n) { return allocate_device(device_, n, stream_); };
  if (user_memory().has_allocator(device_)) return blocks_.allocate_unkept(nbytes, fresh);
  return blocks_.allocate(
      nbytes, fresh, [this](void* memory) { free_device(device_, memory, stream_); });
}

void OwnStream::free(void* memory) noexcept {
  blocks_.free(memory, [this](void* back) { free_device(device_, back, stream_); });
}

std::unique_ptr<OwnStream> take_stream(int device) {
  IdleStreams& idle = IdleStreams::get();
  {
    ForkLock lock(idle.mutex);
    auto& streams = idle.of_device[device];
    if (!streams.empty()) {
      std::unique_ptr<OwnStream> stream = std::move(streams.back());
      streams.pop_back();
      return stream;
    }
  }
  return std::make_unique<OwnStream>(device);
}

void give_stream(int device, std::unique_ptr<OwnStream> stream) noexcept {
  IdleStreams& idle = IdleStreams::get();
  ForkLock lock(idle.mutex);
  idle.of_device[device].push_back(std::move(stream));
}

}  // namespace headrace
