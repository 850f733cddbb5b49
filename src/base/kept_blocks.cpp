#include "base/kept_blocks.h"

#include <algorithm>

namespace headrace {

void* KeptBlocks::allocate(std::size_t nbytes, Fresh fresh, Back back) {
  if (nbytes > most_each_) return allocate_unkept(nbytes, fresh);
  {
    const MutexLock lock(mutex_);
    const auto fit = std::ranges::find_if(
        freed_, [&](const Block& b) { return b.nbytes >= nbytes && b.nbytes / 2 <= nbytes; });
    if (fit != freed_.end()) {
      const Block block = *fit;
      sizes_.insert_or_assign(block.data, block.nbytes);
      freed_.erase(fit);
      freed_nbytes_ -= block.nbytes;
      return block.data;
    }
  }
  void* const memory = fresh(nbytes);
  try {
    const MutexLock lock(mutex_);
    // free() must not fail for want of memory.
    const std::size_t most = freed_.size() + sizes_.size() + 1;
    if (freed_.capacity() < most) freed_.reserve(2 * most);
    sizes_.insert_or_assign(memory, nbytes);
  } catch (...) {
    back(memory);
    throw;
  }
  return memory;
}

void* KeptBlocks::allocate_unkept(std::size_t nbytes, Fresh fresh) {
  void* const memory = fresh(nbytes);
  // Others may have freed this address without telling us.
  const MutexLock lock(mutex_);
  sizes_.erase(memory);
  return memory;
}

void KeptBlocks::free(void* memory, Back back) noexcept {
  {
    const MutexLock lock(mutex_);
    const auto known = sizes_.find(memory);
    if (known != sizes_.end()) {
      freed_.push_back({memory, known->second});
      freed_nbytes_ += known->second;
      sizes_.erase(known);
      memory = nullptr;
    }
  }
  if (memory) return back(memory);
  for (;;) {
    void* oldest = nullptr;
    {
      const MutexLock lock(mutex_);
      if (freed_nbytes_ <= most_) return;
      oldest = freed_.front().data;
      freed_nbytes_ -= freed_.front().nbytes;
      freed_.erase(freed_.begin());
    }
    back(oldest);
  }
}

std::size_t KeptBlocks::kept_nbytes() const {
  const MutexLock lock(mutex_);
  return freed_nbytes_;
}

}  // namespace headrace
