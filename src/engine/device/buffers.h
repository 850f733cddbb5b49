#pragma once

// Buffers of callers on their way to kernels, which want them padded.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/backend.h"

namespace headrace {

// Bytes that somebody else owns, in host memory or in that of one device.
struct BatchBuffer {
  std::byte* data = nullptr;
  std::size_t nbytes = 0;
  bool on_device = false;
};

// A copy of bytes within the device, for Kernels::copy.
inline Frame copy_of(const std::uint8_t* source, std::uint8_t* target, std::size_t nbytes) {
  return {source, nbytes, target, nbytes, 0};
}

// Copies of buffers in one block of device memory, padded.
struct Sources {
  Scratch<std::uint8_t> memory;
  std::shared_ptr<std::byte> pinned;         // what came from the host: until the queue is done
  std::vector<const std::uint8_t*> frames;   // on the device
  std::vector<const std::uint8_t*> on_host;  // of all buffers; empty when one lies on the device
};
Sources copy_sources(Queue& queue,
                     Backend& backend,
                     int index,
                     std::span<const BatchBuffer> buffers);

}  // namespace headrace
