#include "simt/recycling_vector.h"

#include <array>
#include <bit>
#include <new>

#include "base/fork_mutex.h"

namespace headrace {
namespace {

constexpr std::size_t kSmallest = std::size_t{32} << 10;  // what malloc keeps by itself
constexpr std::size_t kLargest = std::size_t{8} << 20;
constexpr std::size_t kHeld = std::size_t{32} << 20;  // at most

// Free blocks by the power of two that is their size.
class Recycled {
 public:
  static Recycled& get() {
    static auto* recycled = new Recycled;  // never destroyed: vectors may outlive statics
    return *recycled;
  }

  // Null when there is none.
  void* take(std::size_t size) {
    ForkLock lock(mutex_);
    std::vector<void*>& blocks = blocks_of(size);
    if (blocks.empty()) return nullptr;
    void* const memory = blocks.back();
    blocks.pop_back();
    held_ -= size;
    return memory;
  }

  // False when enough is held.
  bool give(void* memory, std::size_t size) {
    ForkLock lock(mutex_);
    if (held_ + size > kHeld) return false;
    blocks_of(size).push_back(memory);
    held_ += size;
    return true;
  }

 private:
  Recycled() {
    for (std::vector<void*>& blocks : blocks_) blocks.reserve(kHeld / kSmallest);
  }
  std::vector<void*>& blocks_of(std::size_t size) REQUIRES(mutex_) {
    return blocks_[static_cast<std::size_t>(std::countr_zero(size / kSmallest))];
  }

  ForkMutex mutex_;
  std::array<std::vector<void*>, std::bit_width(kLargest / kSmallest)> blocks_ GUARDED_BY(mutex_);
  std::size_t held_ GUARDED_BY(mutex_) = 0;
};

bool is_recycled(std::size_t nbytes) { return nbytes >= kSmallest && nbytes <= kLargest; }

}  // namespace

void* take_recycled(std::size_t nbytes) {
  if (!is_recycled(nbytes)) return ::operator new(nbytes);
  const std::size_t size = std::bit_ceil(nbytes);
  void* const memory = Recycled::get().take(size);
  return memory ? memory : ::operator new(size);
}

void give_recycled(void* memory, std::size_t nbytes) noexcept {
  if (!is_recycled(nbytes) || !Recycled::get().give(memory, std::bit_ceil(nbytes)))
    ::operator delete(memory);
}

}  // namespace headrace
