#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <memory>

#include "cuda/own_stream.h"
#include "simt/queue.h"

namespace headrace {

class CudaMark;

// Throws `unsupported` while a graph is made of the stream: of the default one, while any other
// that waits for it is being captured.
void check_uncaptured(int device, cudaStream_t stream);

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
  unsigned tuned_for() const override { return tuned_for_; }
  void tune_for(unsigned processors) override { tuned_for_ = processors; }
  std::size_t shared_nbytes() const override { return shared_nbytes_; }
  void* allocate(std::size_t nbytes) override;
  void free(void* memory) noexcept override;
  void upload(void* target, const void* source, std::size_t nbytes) override;
  void upload_made(void* target, std::size_t nbytes, FunctionRef<void(void*)> make) override;
  void upload_pinned(void* target, const void* source, std::size_t nbytes) override;
  void download(void* target, const void* source, std::size_t nbytes) override;
  void copy(void* target, const void* source, std::size_t nbytes) override;
  void fill(void* target, std::uint8_t value, std::size_t nbytes) override;
  void synchronize() override;
  std::unique_ptr<Mark> mark() override;
  void wait_for(Queue& other) override;
  void wait_for(Mark& mark) override;
  void notify(std::function<void()> done) override;

 private:
  // A copy, in pinned memory, of what is being uploaded.
  struct Staged {
    std::shared_ptr<std::byte> block;
    std::unique_ptr<CudaMark> copied;
  };
  void drop_copied();

  int device_;
  std::unique_ptr<OwnStream> own_;  // null on a stream of the caller's
  cudaStream_t stream_;
  unsigned processors_;
  unsigned tuned_for_;
  std::size_t shared_nbytes_;
  std::deque<Staged> staged_;
};

}  // namespace headrace
