#pragma once

// Streams of headrace's own, and what each keeps of the memory that was freed in its order.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "base/kept_blocks.h"

namespace headrace {

// A non-blocking stream. Freed blocks of moderate size stay with it and serve its next allocations:
// in a pool that has held large memory the driver takes 50 us to cut a small block, in a fresh one
// 1 us (H200, CUDA 13.0). A user's allocator is always asked.
class OwnStream {
 public:
  explicit OwnStream(int device);
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  cudaStream_t stream() const { return stream_; }
  void* allocate(std::size_t nbytes);
  // Memory of other queues goes back to where it came from.
  void free(void* memory) noexcept;

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
  KeptBlocks blocks_;
};

// One that is idle, or a new one. Those given back are never destroyed.
std::unique_ptr<OwnStream> take_stream(int device);
void give_stream(int device, std::unique_ptr<OwnStream> stream) noexcept;

}  // namespace headrace
