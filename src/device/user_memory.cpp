#include "device/user_memory.h"

#include <algorithm>
#include <string>

#include "headrace/error.h"

namespace headrace {

void UserMemory::set(int index, const Allocator& allocator) {
  auto next = allocator.allocate ? std::make_shared<const Allocator>(allocator) : nullptr;
  ForkLock lock(mutex_);
  allocators_[index].swap(next);
}

bool UserMemory::has_allocator(int index) const {
  ForkLock lock(mutex_);
  const auto found = allocators_.find(index);
  return found != allocators_.end() && found->second;
}

void* UserMemory::allocate(int index, std::size_t nbytes, Stream stream) {
  std::shared_ptr<const Allocator> allocator;
  {
    ForkLock lock(mutex_);
    const auto found = allocators_.find(index);
    if (found == allocators_.end() || !found->second) return nullptr;
    allocator = found->second;
  }
  nbytes = std::max<std::size_t>(nbytes, 1);
  void* memory = allocator->allocate(nbytes, stream);
  if (!memory) {
    throw Error(ErrorCode::out_of_memory,
                "the allocator that was set gives no " + std::to_string(nbytes) + " bytes");
  }
  ForkLock lock(mutex_);
  blocks_[memory] = {std::move(allocator), nbytes, stream};
  return memory;
}

std::optional<Stream> UserMemory::stream_of(void* memory) const {
  ForkLock lock(mutex_);
  const auto found = blocks_.find(memory);
  return found == blocks_.end() ? std::nullopt : std::optional(found->second.stream);
}

bool UserMemory::free(void* memory, Stream stream) noexcept {
  Block block;
  {
    ForkLock lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) return false;
    block = std::move(found->second);
    blocks_.erase(found);
  }
  block.allocator->free(memory, block.nbytes, stream);
  return true;
}

}  // namespace headrace
