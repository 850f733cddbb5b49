#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "headrace/error.h"
#include "headrace/tensor.h"

#pragma GCC visibility push(default)
namespace headrace {

// Where the memory of a device comes from, so that a process needs one pool only: that of PyTorch
// or RMM, say. Called from any thread, several at once.
struct Allocator {
  // Memory of `nbytes` > 0 bytes, aligned to 256, for work that `stream` is given after the call.
  // Null: there is none.
  std::function<void*(std::size_t nbytes, Stream stream)> allocate;
  // Takes it back. Work that `stream` was given before the call may still use it. Must not throw.
  std::function<void(void* memory, std::size_t nbytes, Stream stream)> free;
};

// Of results and scratch on `device` from now on; memory that is there goes back where it came
// from. Without functions: headrace's own pool.
void set_allocator(Device device, const Allocator& allocator);

// `device` when a device that was named is certainly not there, without starting the driver, which
// a child of fork could not use then. Where that is not certain, its first use tells.
void check_present(const Device& device);

// Called with what queued work (decode_batch_async) found wrong when nobody asked for it while
// somebody could: its last Ready is gone. From any thread; must not throw. Without a function, the
// default, such errors are dropped.
void set_lost_error_handler(std::function<void(const Error& error)> handler);

// Locks the pages of host memory so that `device` copies from and to it at full speed, without a
// copy on the host in between; unlocked with the last copy of the pointer. The memory must stay
// mapped until then. `device` when the driver refuses. On "simt" there is nothing to do.
std::shared_ptr<void> pin_memory(void* data, std::size_t nbytes, Device device = Device::cuda());

}  // namespace headrace
#pragma GCC visibility pop
