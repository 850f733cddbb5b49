#pragma once

// A type of device as the rest of the library sees it:
//  1. backend(device.type).make_queue(device.index) gives a queue: memory, copies, order.
//  2. kernels() work on that queue.
//  3. allocate() makes memory that outlives the queue: results.
// Nothing of a driver is touched before the first call on a device.

#include <cstddef>
#include <memory>
#include <string>

#include "base/function_ref.h"
#include "headrace/device.h"
#include "headrace/tensor.h"
#include "kernels/kernels.h"
#include "simt/queue.h"

namespace headrace {

class Backend {
 public:
  virtual ~Backend() = default;

  virtual int device_count() const = 0;  // 0 when there is none that can be used
  // Why device `index` cannot be used; empty when it can.
  virtual std::string why_not(int index) const = 0;
  virtual std::string device_name(int index) const = 0;    // "NVIDIA H200"
  virtual std::size_t memory_nbytes(int index) const = 0;  // in all
  virtual const Kernels& kernels() const = 0;
  // Decoders of nvCOMP, where the user has installed it; all null where nvcomp_why_not() says why.
  virtual const Kernels& nvcomp_kernels() const;
  virtual std::string nvcomp_why_not() const;

  virtual std::unique_ptr<Queue> make_queue(int index) = 0;
  // A queue on the caller's stream; null is the device's default stream.
  virtual std::unique_ptr<Queue> wrap_stream(int index, void* stream) = 0;

  // Memory that anybody may keep: for work given to `queue` at once, for others after its next
  // synchronize() or by wait_for(). When it is freed, whatever the device's default stream was
  // given until then may still use it.
  virtual std::shared_ptr<void> allocate(Queue& queue, std::size_t nbytes) = 0;
  // Host memory that devices of the type copy from and to at full speed, aligned to 64 bytes.
  // Blocks that are freed are kept for the next. `index` is a device that is in use already.
  virtual std::shared_ptr<std::byte> allocate_pinned(int index, std::size_t nbytes) = 0;
  // The pages of the caller's memory; unlocked with the last copy of the pointer.
  virtual std::shared_ptr<void> pin(int index, void* data, std::size_t nbytes) = 0;
  virtual void set_allocator(int index, const Allocator& allocator) = 0;
  // Calls `body` with the device current to this thread, for libraries that ask the driver for it.
  virtual void with_device(int index, FunctionRef<void()> body);
};

// Not for the CPU, which has no backend.
Backend& backend(Device::Type type);

Backend& simt_backend();
Backend& cuda_backend();  // src/cuda, or src/no_cuda in a build without

}  // namespace headrace
