#pragma once

#include <cuda_runtime_api.h>

#include "simt/queue.h"

namespace headrace {

// A CUDA stream of its own, or one of the caller's. Every call makes the queue's device current for
// as long as it takes.
class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(int device);
  CudaQueue(int device, cudaStream_t stream);
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }

  void* native() const override { return stream_; }
  unsigned processors() const override { return processors_; }
  void* allocate(std::size_t nbytes) override;
  void free(void* memory) noexcept override;
  void upload(void* target, const void* source, std::size_t nbytes) override;
  void upload_pinned(void* target, const void* source, std::size_t nbytes) override;
  void download(void* target, const void* source, std::size_t nbytes) override;
  void copy(void* target, const void* source, std::size_t nbytes) override;
  void fill(void* target, std::uint8_t value, std::size_t nbytes) override;
  void synchronize() override;
  std::unique_ptr<Mark> mark() override;
  void wait_for(Queue& other) override;

 private:
  int device_;
  cudaStream_t stream_;
  bool owned_;
  unsigned processors_;
};

}  // namespace headrace
