#pragma once

#include <map>
#include <memory>
#include <optional>

#include "base/fork_mutex.h"
#include "headrace/device.h"

namespace headrace {

// The user's allocators of a type of device, and what came from them: it goes back to the one it
// came from, whichever is set by then.
class UserMemory {
 public:
  // Without functions: none.
  void set(int index, const Allocator& allocator);
  bool has_allocator(int index) const;
  // Null when device `index` has no allocator of the user's. Throws `out_of_memory`.
  void* allocate(int index, std::size_t nbytes, Stream stream);
  // The stream that memory was allocated for; nothing for memory of others.
  std::optional<Stream> stream_of(void* memory) const;
  // False for memory of others.
  bool free(void* memory, Stream stream) noexcept;

 private:
  struct Block {
    std::shared_ptr<const Allocator> allocator;
    std::size_t nbytes;
    Stream stream;
  };

  mutable ForkMutex mutex_;
  std::map<int, std::shared_ptr<const Allocator>> allocators_ GUARDED_BY(mutex_);
  std::map<void*, Block> blocks_ GUARDED_BY(mutex_);
};

}  // namespace headrace
