#pragma once

#include <cuda_runtime_api.h>

#include "simt/queue.h"

namespace headrace {

// A CUDA stream of its own, or one of the caller's.
class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(int device);
  CudaQueue(int device, cudaStream_t stream);
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;

  void* native() const override { return stream_; }
  unsigned processors() const override { return processors_; }
  void* allocate(std::size_t nbytes) override;
  void free(void* memory) noexcept override;
  void upload(void* target, const void* source, std::size_t nbytes) override;
  void download(void* target, const void* source, std::size_t nbytes) override;
  void copy(void* target, const void* source, std::size_t nbytes) override;
  void fill(void* target, std::uint8_t value, std::size_t nbytes) override;
  void synchronize() override;

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
  bool owned_;
  unsigned processors_;
};

}  // namespace headrace
