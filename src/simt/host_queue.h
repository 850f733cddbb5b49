#pragma once

#include <atomic>

#include "simt/queue.h"

namespace headrace {

// The memory of the host run's device, counted, so that tests can let any allocation fail and see
// that nothing stays: of the queues, and results and pinned memory of its backend.
class HostMemory {
 public:
  static HostMemory& get();

  // The `nth` allocation from now on throws `out_of_memory`; 0: none does.
  void fail(long nth) { until_failure_ = nth; }
  // Whether it has. Where none is to, it has too.
  bool failed() const { return until_failure_ == 0; }
  // Blocks that are in use.
  long used() const { return used_; }

  // Around an allocation: before it, and after it or when it is freed again.
  void allocate(std::size_t nbytes);
  void free() { --used_; }

 private:
  std::atomic<long> until_failure_{0};
  std::atomic<long> used_{0};
};

// Runs each kernel at launch, on the thread pool. The seed decides the order of CTAs and threads
// and what fresh memory holds: the same seed gives the same run.
class HostQueue final : public Queue {
 public:
  explicit HostQueue(std::uint64_t seed = 0) : seed_(seed) {}

  void* native() const override { return nullptr; }
  unsigned processors() const override { return 4; }
  // The kernels that an H200 would run: tests are for those.
  unsigned tuned_for() const override { return tuned_for_; }
  void tune_for(unsigned processors) { tuned_for_ = processors; }
  std::size_t shared_nbytes() const override { return std::size_t{227} << 10; }
  void* allocate(std::size_t nbytes) override;
  void free(void* memory) noexcept override;
  void upload(void* target, const void* source, std::size_t nbytes) override;
  void upload_made(void* target, std::size_t nbytes, FunctionRef<void(void*)> make) override;
  void upload_pinned(void* target, const void* source, std::size_t nbytes) override;
  void download(void* target, const void* source, std::size_t nbytes) override;
  void copy(void* target, const void* source, std::size_t nbytes) override;
  void fill(void* target, std::uint8_t value, std::size_t nbytes) override;
  void synchronize() override {}
  std::unique_ptr<Mark> mark() override;
  void wait_for(Queue&) override {}

  // Another number at each call.
  std::uint64_t next_random();

 private:
  std::uint64_t seed_;
  unsigned tuned_for_ = kMeasuredProcessors;
  std::atomic<std::uint64_t> calls_{0};
};

}  // namespace headrace
