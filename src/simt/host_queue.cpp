#include "simt/host_queue.h"

#include <cstring>
#include <new>

#include "headrace/error.h"
#include "simt/random.h"

namespace headrace {
namespace {

constexpr std::align_val_t kAlignment{256};
// As much of fresh memory as gets arbitrary contents: all of it would cost more than most kernels.
constexpr std::size_t kPoisoned = 64 * 1024;

// All work is done when it is given.
class HostMark final : public Mark {
 public:
  void wait() override {}
};

}  // namespace

HostMemory& HostMemory::get() {
  static auto* memory = new HostMemory;  // never destroyed: results may outlive statics
  return *memory;
}

void HostMemory::allocate(std::size_t nbytes) {
  for (long n = until_failure_; n > 0;) {
    if (!until_failure_.compare_exchange_weak(n, n - 1)) continue;
    if (n > 1) break;
    throw Error(ErrorCode::out_of_memory,
                "simt: a test lets the allocation of " + std::to_string(nbytes) + " bytes fail");
  }
  ++used_;
}

void* HostQueue::allocate(std::size_t nbytes) {
  HostMemory::get().allocate(nbytes);
  void* memory = ::operator new(nbytes + (nbytes == 0), kAlignment, std::nothrow);
  if (!memory) {
    HostMemory::get().free();
    throw Error(ErrorCode::out_of_memory,
                "simt: cannot allocate " + std::to_string(nbytes) + " bytes");
  }
  std::memset(memory, static_cast<int>(next_random() & 255), std::min(nbytes, kPoisoned));
  return memory;
}

void HostQueue::free(void* memory) noexcept {
  ::operator delete(memory, kAlignment);
  HostMemory::get().free();
}

void HostQueue::upload(void* target, const void* source, std::size_t nbytes) {
  copy(target, source, nbytes);
}

void HostQueue::upload_made(void* target, std::size_t, FunctionRef<void(void*)> make) {
  make(target);
}

void HostQueue::upload_pinned(void* target, const void* source, std::size_t nbytes) {
  copy(target, source, nbytes);
}

void HostQueue::download(void* target, const void* source, std::size_t nbytes) {
  copy(target, source, nbytes);
}

void HostQueue::copy(void* target, const void* source, std::size_t nbytes) {
  if (nbytes) std::memcpy(target, source, nbytes);
}

void HostQueue::fill(void* target, std::uint8_t value, std::size_t nbytes) {
  if (nbytes) std::memset(target, value, nbytes);
}

std::unique_ptr<Mark> HostQueue::mark() { return std::make_unique<HostMark>(); }

std::uint64_t HostQueue::next_random() { return mix(seed_ + mix(calls_++)); }

}  // namespace headrace
