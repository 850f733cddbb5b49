#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "headrace/tensor.h"
#include "kernels/kernels.h"

namespace headrace::loader {

// Where chunks are decoded to and batches are made. What is asked for is done in the order of the
// calls, by the time finish() returns at the latest.
class BatchMemory {
 public:
  virtual ~BatchMemory() = default;

  // For chunks: must be let go before this.
  virtual std::shared_ptr<void> allocate(std::size_t nbytes) = 0;
  // For who takes batches.
  virtual Tensor allocate_tensor(const Shape& shape, const DType& dtype) = 0;
  virtual void upload(void* target, const void* source, std::size_t nbytes) = 0;
  virtual void zero(void* target, std::size_t nbytes) = 0;
  virtual void copy(void* target, const void* source, std::size_t nbytes) = 0;
  virtual void gather(const GatherBatch& batch) = 0;
  // A gather that converts nothing.
  virtual void gather_as_is(std::span<const GatherBox> boxes,
                            unsigned axes,
                            std::size_t itemsize) = 0;
  virtual void finish() = 0;
  // What reads into this memory have to wait for.
  virtual Stream stream() const = 0;
};

std::unique_ptr<BatchMemory> make_batch_memory(Device device);

}  // namespace headrace::loader
