#include "cuda/own_stream.h"

#include <algorithm>
#include <map>
#include <utility>

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
  std::map<int, std::vector<std::unique_ptr<OwnStream>>> of_device;

  static IdleStreams& get() {
    static auto* streams = new IdleStreams;  // never destroyed: the driver may be gone before
    return *streams;
  }
};

}  // namespace

OwnStream::OwnStream(int device) : device_(device) {
  const DeviceGuard guard(device);
  HEADRACE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

void* OwnStream::allocate(std::size_t nbytes) {
  if (nbytes > kMaxKeptBlock || user_memory().has_allocator(device_))
    return allocate_device(device_, nbytes, stream_);
  std::lock_guard lock(mutex_);
  const auto fit = std::ranges::find_if(
      freed_, [&](const Block& b) { return b.nbytes >= nbytes && b.nbytes / 2 <= nbytes; });
  if (fit == freed_.end()) {
    void* const fresh = allocate_device(device_, nbytes, stream_);
    sizes_.insert_or_assign(fresh, nbytes);
    return fresh;
  }
  const Block block = *fit;
  freed_.erase(fit);
  freed_nbytes_ -= block.nbytes;
  sizes_.insert_or_assign(block.data, block.nbytes);
  return block.data;
}

void OwnStream::free(void* memory) noexcept {
  std::lock_guard lock(mutex_);
  const auto known = sizes_.find(memory);
  if (known == sizes_.end()) return free_device(device_, memory, stream_);
  freed_.push_back({memory, known->second});
  freed_nbytes_ += known->second;
  sizes_.erase(known);
  while (freed_nbytes_ > kMaxKept) {
    const Block oldest = freed_.front();
    freed_.erase(freed_.begin());
    freed_nbytes_ -= oldest.nbytes;
    free_device(device_, oldest.data, stream_);
  }
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
