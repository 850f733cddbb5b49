#pragma once

// Blocks of memory that are freed and kept for the next who asks.

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "base/mutex.h"

namespace headrace {

// Any thread. Blocks come from `fresh` and go back through `back`, which are called without the
// lock and may give an address again that somebody else has freed: what is known of a block ends
// with it.
class KeptBlocks {
 public:
  using Fresh = FunctionRef<void*(std::size_t nbytes)>;
  using Back = FunctionRef<void(void* memory)>;

  // Blocks of up to `most_each` bytes are kept, `most` bytes of them.
  KeptBlocks(std::size_t most_each, std::size_t most) : most_each_(most_each), most_(most) {}

  // A kept block of up to twice the size, or a fresh one. Throws what `fresh` throws.
  void* allocate(std::size_t nbytes, Fresh fresh, Back back);
  // One that is not to be kept when it is freed.
  void* allocate_unkept(std::size_t nbytes, Fresh fresh);
  // Of any origin; calls `back` for blocks that are not kept.
  void free(void* memory, Back back) noexcept;

  std::size_t kept_nbytes() const;

 private:
  struct Block {
    void* data;
    std::size_t nbytes;
  };

  const std::size_t most_each_, most_;
  mutable Mutex mutex_;
  // Of blocks in use that may stay.
  std::unordered_map<void*, std::size_t> sizes_ GUARDED_BY(mutex_);
  std::vector<Block> freed_ GUARDED_BY(mutex_);  // has room for all of sizes_
  std::size_t freed_nbytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
