#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/function_ref.h"

namespace headrace {

// Of the H200 that kernels/tuning.h was measured on.
inline constexpr unsigned kMeasuredProcessors = 132;

// A point in the work of a queue.
class Mark {
 public:
  virtual ~Mark() = default;
  // Returns when the work given before it is done. Throws `device` when some of it failed.
  virtual void wait() = 0;
  // Whether wait() would return, or throw, at once.
  virtual bool is_reached() const = 0;
};

// Work for one device, done in the order given, and memory that lives in that order: freed memory
// is used again only by work given later. The device is a GPU or, for the host run of kernels,
// none.
class Queue {
 public:
  virtual ~Queue() = default;

  // The native stream (cudaStream_t); null on the host.
  virtual void* native() const = 0;
  // How many CTAs of one kernel the device runs side by side at least (multiprocessors).
  virtual unsigned processors() const = 0;
  // For how many of them kernels are chosen (kernels/tuning.h): at first all; fewer where other
  // queues have a share of the device meanwhile.
  virtual unsigned tuned_for() const = 0;
  virtual void tune_for(unsigned processors) = 0;
  // The most shared memory that a CTA can have.
  virtual std::size_t shared_nbytes() const = 0;

  // Uninitialised device memory, aligned to 256 bytes. Throws `out_of_memory`.
  virtual void* allocate(std::size_t nbytes) = 0;
  virtual void free(void* memory) noexcept = 0;

  // `source` is host memory and may be used again on return.
  virtual void upload(void* target, const void* source, std::size_t nbytes) = 0;
  // As upload, of what `make` puts into the memory that it is given: spares a copy.
  virtual void upload_made(void* target,
                           std::size_t nbytes,
                           FunctionRef<void(void* source)> make) = 0;
  // As upload, but `source` is pinned memory (Backend::allocate_pinned) and must stay as it is
  // until a mark made after this.
  virtual void upload_pinned(void* target, const void* source, std::size_t nbytes) = 0;
  // `target` is host memory, written by the time synchronize() or a later mark's wait() returns.
  virtual void download(void* target, const void* source, std::size_t nbytes) = 0;
  // Within the device.
  virtual void copy(void* target, const void* source, std::size_t nbytes) = 0;
  virtual void fill(void* target, std::uint8_t value, std::size_t nbytes) = 0;
  // Returns when all work given so far is done. Throws `device` when some of it failed.
  virtual void synchronize() = 0;
  virtual std::unique_ptr<Mark> mark() = 0;
  // Work given from now on waits for all that `other`, of the same device, was given so far.
  virtual void wait_for(Queue& other) = 0;
  // The same for a mark of a queue of the device.
  virtual void wait_for(Mark& mark) = 0;
  // Calls `done` once the work given so far is done, from a thread of the driver's: it must neither
  // throw nor call the queue. Never where that work failed.
  virtual void notify(std::function<void()> done) = 0;
};

// The CTAs of a launch as a device counts them. Throws `unsupported` for more than a grid can
// have.
unsigned grid_ctas(std::size_t ctas);

// What a CTA can have on each GPU that there is code for: least with compute capability 7.5, and of
// those after it with 8.6, 8.9 and 12.0.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications
inline constexpr std::size_t kSharedEverywhere = std::size_t{64} << 10;
inline constexpr std::size_t kSharedFromAmpere = std::size_t{99} << 10;

// A kernel that takes more says `static constexpr bool kOnlyWhereItFits = true`, and whoever
// launches it asks fits() before.
template <class Kernel>
constexpr bool fits_where_it_runs() {
  if constexpr (requires { Kernel::kOnlyWhereItFits; })
    if (Kernel::kOnlyWhereItFits) return true;
  return sizeof(typename Kernel::Shared) <= kSharedEverywhere;
}

// Whether the device has the shared memory that a CTA of the kernel takes.
template <class Kernel>
bool fits(const Queue& queue) {
  return sizeof(typename Kernel::Shared) <= queue.shared_nbytes();
}

// Device memory of `count` objects for as long as this lives, in the order of the queue.
template <class T>
class Scratch {
 public:
  Scratch() = default;
  Scratch(Queue& queue, std::size_t count)
      : queue_(&queue), data_(static_cast<T*>(queue.allocate(count * sizeof(T)))), size_(count) {}
  Scratch(Scratch&& other) noexcept { swap(other); }
  Scratch& operator=(Scratch&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Scratch() {
    if (data_) queue_->free(data_);
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }

  // A copy of host objects.
  static Scratch of(Queue& queue, const T* objects, std::size_t count) {
    Scratch scratch(queue, count);
    queue.upload(scratch.data(), objects, count * sizeof(T));
    return scratch;
  }

 private:
  void swap(Scratch& other) noexcept {
    std::swap(queue_, other.queue_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  Queue* queue_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace headrace
