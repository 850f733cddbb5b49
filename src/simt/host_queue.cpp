#include "simt/host_queue.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <set>
#include <system_error>
#include <utility>

#include "base/fork_mutex.h"
#include "base/start_thread.h"
#include "headrace/error.h"
#include "simt/random.h"

namespace headrace {
namespace {

constexpr std::align_val_t kAlignment{256};
// As much of fresh memory as gets arbitrary contents: all of it would cost more than most kernels.
constexpr std::size_t kPoisoned = 64 * 1024;

class HostMark final : public Mark {
 public:
  HostMark(std::shared_ptr<HostWork> work, std::uint64_t count)
      : work_(std::move(work)), count_(count) {}
  void wait() override { work_->wait(count_); }
  bool is_reached() const override { return work_->has_done(count_); }

  const std::shared_ptr<HostWork>& work() const { return work_; }

 private:
  const std::shared_ptr<HostWork> work_;
  const std::uint64_t count_;
};

// Streams that tests made and that are there still.
struct HostStreams {
  ForkMutex mutex;
  std::set<void*> handles GUARDED_BY(mutex);

  static HostStreams& get() {
    static auto* streams = new HostStreams;  // never destroyed: results may outlive statics
    return *streams;
  }
};

}  // namespace

HostMemory& HostMemory::get() {
  static auto* memory = new HostMemory;  // never destroyed: results may outlive statics
  return *memory;
}

void HostMemory::allocate(std::size_t nbytes) {
  for (long n = until_failure_; n > 0;) {
    if (!until_failure_.compare_exchange_weak(n, n - 1)) continue;
    if (n > 1) break;
    throw Error(ErrorCode::out_of_memory,
                "simt: a test lets the allocation of " + std::to_string(nbytes) + " bytes fail");
  }
  ++used_;
}

void* HostQueue::allocate(std::size_t nbytes) {
  HostMemory::get().allocate(nbytes);
  void* memory = ::operator new(nbytes + (nbytes == 0), kAlignment, std::nothrow);
  if (!memory) {
    HostMemory::get().free();
    throw Error(ErrorCode::out_of_memory,
                "simt: cannot allocate " + std::to_string(nbytes) + " bytes");
  }
  std::memset(memory, static_cast<int>(next_random() & 255), std::min(nbytes, kPoisoned));
  return memory;
}

void HostQueue::free(void* memory) noexcept {
  try {
    // Freed by going, not by being called: work behind a failure is dropped.
    const std::shared_ptr<void> kept(memory, [](void* freed) {
      ::operator delete(freed, kAlignment);
      HostMemory::get().free();
    });
    give([kept] {});
  } catch (const std::exception&) {
    // There was no thread to be had, so that nothing is under way that could use it.
  }
}

void HostQueue::upload(void* target, const void* source, std::size_t nbytes) {
  upload_made(target, nbytes, [&](void* made) {
    if (nbytes) std::memcpy(made, source, nbytes);
  });
}

void HostQueue::upload_made(void* target, std::size_t nbytes, FunctionRef<void(void*)> make) {
  if (work_->is_idle()) return make(target);
  std::vector<std::byte> made(nbytes);
  make(made.data());
  work_->put([target, made = std::move(made)] {
    if (!made.empty()) std::memcpy(target, made.data(), made.size());
  });
}

void HostQueue::upload_pinned(void* target, const void* source, std::size_t nbytes) {
  copy(target, source, nbytes);
}

void HostQueue::download(void* target, const void* source, std::size_t nbytes) {
  copy(target, source, nbytes);
}

void HostQueue::copy(void* target, const void* source, std::size_t nbytes) {
  give([=] {
    if (nbytes) std::memcpy(target, source, nbytes);
  });
}

void HostQueue::fill(void* target, std::uint8_t value, std::size_t nbytes) {
  give([=] {
    if (nbytes) std::memset(target, value, nbytes);
  });
}

std::unique_ptr<Mark> HostQueue::mark() {
  return std::make_unique<HostMark>(work_, work_->put_so_far());
}

void HostQueue::wait_for(Queue& other) { wait_for(*other.mark()); }

void HostQueue::wait_for(Mark& mark) {
  const auto& of = static_cast<HostMark&>(mark);
  if (of.work() == work_ || of.is_reached()) return;
  work_->put([of] { HostMark(of).wait(); });
}

void HostQueue::notify(std::function<void()> done) {
  const auto work = work_;  // who is told may drop the queue
  if (work->is_idle()) return done();
  work->put(std::move(done));
}

void HostWork::put(std::function<void()> work) {
  const MutexLock lock(mutex_);
  if (!has_thread_) {
    // It finds the work behind the lock. Where there is no thread to be had, nothing was put.
    try {
      start_thread([self = shared_from_this()] { self->work_off(); }).detach();
    } catch (const std::system_error&) {
      throw Error(ErrorCode::io, "simt: cannot start a thread", EAGAIN);
    }
    has_thread_ = true;
  }
  waiting_.push_back(std::move(work));
  ++put_;
  ++left_;
}

std::uint64_t HostWork::put_so_far() const {
  const MutexLock lock(mutex_);
  return put_;
}

bool HostWork::has_done(std::uint64_t count) const {
  const MutexLock lock(mutex_);
  return done_ >= count || error_;
}

void HostWork::wait(std::uint64_t count) {
  const MutexLock lock(mutex_);
  while (done_ < count && !error_) changed_.wait(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void HostWork::work_off() {
  const MutexLock lock(mutex_);
  while (!waiting_.empty()) {
    std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    const bool runs = !error_;
    std::exception_ptr error;
    {
      const MutexUnlock free(mutex_);
      try {
        if (runs) work();
      } catch (...) {
        error = std::current_exception();
      }
      work = nullptr;  // not under the lock: what it kept may ask how far the work is
    }
    if (error) error_ = error;
    ++done_;
    --left_;
    changed_.notify_all();
  }
  has_thread_ = false;
}

HostStream::HostStream() {
  HostStreams& streams = HostStreams::get();
  const ForkLock lock(streams.mutex);
  streams.handles.insert(this);
}

HostStream::~HostStream() {
  release();
  HostStreams& streams = HostStreams::get();
  const ForkLock lock(streams.mutex);
  streams.handles.erase(this);
}

HostStream* HostStream::find(void* handle) {
  HostStreams& streams = HostStreams::get();
  const ForkLock lock(streams.mutex);
  return streams.handles.contains(handle) ? static_cast<HostStream*>(handle) : nullptr;
}

void HostStream::hold() {
  gate_ = std::make_shared<Gate>();
  work_->put([gate = gate_] {
    const MutexLock lock(gate->mutex);
    while (!gate->open) gate->opened.wait(gate->mutex);
  });
}

void HostStream::release() {
  if (!gate_) return;
  const MutexLock lock(gate_->mutex);
  gate_->open = true;
  gate_->opened.notify_all();
}

std::uint64_t HostQueue::next_random() { return mix(seed_ + mix(calls_++)); }

}  // namespace headrace
