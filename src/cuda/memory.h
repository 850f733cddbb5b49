#pragma once

// Memory of the CUDA devices and host memory that they copy from.

#include <cuda_runtime_api.h>
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace headrace {

class UserMemory;  // device/user_memory.h

// Stream-ordered, from headrace's own pool of the device or the user's allocator.
void* allocate_device(int device, std::size_t nbytes, cudaStream_t stream);
void free_device(int device, void* memory, cudaStream_t stream) noexcept;
// Of a result, once the default stream is done with what it was given so far. While that, or the
// stream that a user's allocator gave it to, is captured, it is kept (device/kept_frees.h).
void free_result(int device, void* memory) noexcept;
UserMemory& user_memory();

// What of the host is near to a device; nothing where all of it is.
struct NearHost {
  std::optional<int> node;  // of memory
  std::vector<int> processors;
};
const NearHost& near_host(int device);

// Of host memory that cudaHostRegister has locked. A forked child, which is not the owner, has no
// driver to tell; failing, it stays locked.
void unpin(int device, pid_t owner, void* data) noexcept;

// Near to the device.
std::shared_ptr<std::byte> allocate_pinned_host(int device, std::size_t nbytes);

}  // namespace headrace
