#pragma once

// The device that stands on the host. A queue does at once what it is given, until it is told to
// wait for a queue that has work left: from then on it is as asynchronous as a GPU's, and a thread
// of its own does its work in order. Tests hold up a HostStream for that.

#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <vector>

#include "base/mutex.h"
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

// What one queue was given and has not done, in order.
class HostWork : public std::enable_shared_from_this<HostWork> {
 public:
  bool is_idle() const { return left_ == 0; }
  // Done later, behind all that was put before it; dropped when some of that failed. Throws `io`
  // when no thread can be started.
  void put(std::function<void()> work);
  // How much was put so far.
  std::uint64_t put_so_far() const;
  bool has_done(std::uint64_t count) const;
  // Throws what of the work failed first, as soon as it has.
  void wait(std::uint64_t count);

 private:
  void work_off();

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::function<void()>> waiting_ GUARDED_BY(mutex_);
  std::uint64_t put_ GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t> left_{0};
  bool has_thread_ GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ GUARDED_BY(mutex_);
};

// Runs each kernel at launch, on the thread pool. The seed decides the order of CTAs and threads
// and what fresh memory holds: the same seed gives the same run.
class HostQueue final : public Queue {
 public:
  explicit HostQueue(std::uint64_t seed = 0,
                     std::shared_ptr<HostWork> work = std::make_shared<HostWork>())
      : seed_(seed), work_(std::move(work)) {}

  void* native() const override { return nullptr; }
  unsigned processors() const override { return 4; }
  // The kernels that an H200 would run: tests are for those.
  unsigned tuned_for() const override { return tuned_for_; }
  void tune_for(unsigned processors) override { tuned_for_ = processors; }
  std::size_t shared_nbytes() const override { return shared_nbytes_; }
  void limit_shared(std::size_t nbytes) { shared_nbytes_ = nbytes; }
  void* allocate(std::size_t nbytes) override;
  void free(void* memory) noexcept override;
  void upload(void* target, const void* source, std::size_t nbytes) override;
  void upload_made(void* target, std::size_t nbytes, FunctionRef<void(void*)> make) override;
  void upload_pinned(void* target, const void* source, std::size_t nbytes) override;
  void download(void* target, const void* source, std::size_t nbytes) override;
  void copy(void* target, const void* source, std::size_t nbytes) override;
  void fill(void* target, std::uint8_t value, std::size_t nbytes) override;
  void synchronize() override { work_->wait(work_->put_so_far()); }
  std::unique_ptr<Mark> mark() override;
  void wait_for(Queue& other) override;
  void wait_for(Mark& mark) override;
  void notify(std::function<void()> done) override;
  // Work that others wait for, not done by who gives it.
  void delay(std::function<void()> work) { work_->put(std::move(work)); }

  // Another number at each call.
  std::uint64_t next_random();
  // run(kernel), or run() of a copy of its bytes.
  template <class Run>
  void give_kernel(const void* kernel, std::size_t nbytes, Run run) {
    if (work_->is_idle()) return run(kernel);
    struct alignas(16) Aligned {
      std::byte bytes[16];
    };
    std::vector<Aligned> copied((nbytes + sizeof(Aligned) - 1) / sizeof(Aligned));
    std::memcpy(copied.data(), kernel, nbytes);
    work_->put([run, copied = std::move(copied)] { run(copied.data()); });
  }

 private:
  template <class Body>
  void give(Body body) {
    if (work_->is_idle()) return body();
    work_->put(std::move(body));
  }

  std::uint64_t seed_;
  unsigned tuned_for_ = kMeasuredProcessors;
  std::size_t shared_nbytes_ = std::size_t{227} << 10;  // an H200's
  std::atomic<std::uint64_t> calls_{0};
  const std::shared_ptr<HostWork> work_;
};

// A stream of a caller of the device, for tests: its address is its handle.
class HostStream {
 public:
  HostStream();
  ~HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  void* handle() { return this; }
  const std::shared_ptr<HostWork>& work() const { return work_; }
  // What it is given from now on is not done before release().
  void hold();
  void release();
  // As if a graph were made of what it is given.
  void capture(bool on) { capturing_ = on; }
  bool is_capturing() const { return capturing_; }

  // Null where no stream has that handle: it is the default one.
  static HostStream* find(void* handle);

 private:
  struct Gate {
    Mutex mutex;
    ConditionVariable opened;
    bool open GUARDED_BY(mutex) = false;
  };
  const std::shared_ptr<HostWork> work_ = std::make_shared<HostWork>();
  std::shared_ptr<Gate> gate_;
  std::atomic<bool> capturing_{false};
};

}  // namespace headrace
