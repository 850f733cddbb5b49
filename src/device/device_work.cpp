#include "device/device_work.h"

#include <algorithm>
#include <utility>

#include "base/fork_mutex.h"
#include "base/memory_errors.h"
#include "base/thread_pool.h"
#include "device/completion.h"
#include "headrace/device.h"
#include "headrace/error.h"

namespace headrace {
namespace {

using LostHandler = std::function<void(const Error&)>;

struct LostErrors {
  ForkMutex mutex;
  std::shared_ptr<const LostHandler> handler GUARDED_BY(mutex);

  static LostErrors& get() {
    static auto* errors = new LostErrors;  // never destroyed: work may outlive statics
    return *errors;
  }
};

// From a destructor.
void tell_lost(const std::exception_ptr& failure) noexcept {
  std::shared_ptr<const LostHandler> handler;
  {
    LostErrors& lost = LostErrors::get();
    const ForkLock lock(lost.mutex);
    handler = lost.handler;
  }
  if (!handler) return;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    try {
      (*handler)(error);
    } catch (...) {
      // It must not throw, and there is nobody else to tell.
    }
  } catch (...) {
    // DeviceWork keeps errors of this library only.
  }
}

// The exception being handled, as one of this library.
std::exception_ptr library_error() {
  try {
    with_memory_errors([] { throw; });
  } catch (const Error&) {
    return std::current_exception();
  } catch (const std::exception& error) {
    return std::make_exception_ptr(Error(ErrorCode::device, error.what()));
  } catch (...) {
    return std::make_exception_ptr(Error(ErrorCode::device, "unknown error"));
  }
  return nullptr;
}

}  // namespace

void set_lost_error_handler(std::function<void(const Error& error)> handler) {
  std::shared_ptr<const LostHandler> given;
  if (handler) given = std::make_shared<const LostHandler>(std::move(handler));
  LostErrors& lost = LostErrors::get();
  const ForkLock lock(lost.mutex);
  lost.handler.swap(given);  // what was there goes behind the lock
}

Ready::Ready(std::shared_ptr<detail::DeviceWork> work) : work_(std::move(work)) {}
bool Ready::done() const { return !work_ || work_->done(); }
bool Ready::wait_for(std::chrono::nanoseconds timeout) const {
  return !work_ || work_->wait_for(timeout);
}
void Ready::wait() const {
  if (!work_) return;
  work_->wait();
  work_->rethrow();
}
void Ready::before(Stream stream) const {
  if (work_) work_->before(stream);
}
Stream Ready::stream() const { return work_ ? work_->stream() : Stream(); }

namespace detail {
namespace {

class Done final : public FutureState {
 public:
  bool done() const override { return true; }
  bool wait_for(std::chrono::nanoseconds) const override { return true; }
  void wait() const override {}
  bool cancel() override { return false; }
  void rethrow() const override {}
  void on_done(std::function<void()> callback) override { callback(); }
};

}  // namespace

DeviceWork::DeviceWork(Device device,
                       Stream stream,
                       std::unique_ptr<Mark> mark,
                       std::function<void()> check)
    : device_(device),
      stream_(stream),
      generation_(fork_generation()),
      mark_(std::move(mark)),
      told_reached_(std::make_shared<std::atomic<bool>>(false)),
      check_(std::move(check)) {}

std::shared_ptr<DeviceWork> DeviceWork::start(Device device,
                                              Queue& queue,
                                              Stream stream,
                                              std::function<void()> check) {
  std::shared_ptr<DeviceWork> work(new DeviceWork(device, stream, queue.mark(), std::move(check)));
  work->before(stream);
  try {
    queue.notify([told = work->told_reached_] {
      told->store(true, std::memory_order_release);
      Completion::wake();
    });
  } catch (const Error&) {
    // Then the completion thread finds out by looking; of what is wrong with the device the mark
    // tells.
  }
  Completion::add(work);  // the last: from here on the queue may go
  return work;
}

DeviceWork::~DeviceWork() {
  if (done_ && error_ && !told_ && generation_ == fork_generation()) tell_lost(error_);
}

void DeviceWork::check_process() const {
  if (generation_ != fork_generation()) {
    throw Error(ErrorCode::cancelled,
                "work of a device that was queued before fork() cannot be waited for in the child");
  }
}

bool DeviceWork::done() const { return done_.load(std::memory_order_acquire); }

bool DeviceWork::complete_if_reached() const {
  if (done()) return true;
  std::exception_ptr error;
  try {
    if (!mark_->is_reached()) return false;
  } catch (...) {
    error = library_error();
  }
  return complete(std::move(error));
}

bool DeviceWork::complete(std::exception_ptr error) const {
  std::function<void()> check;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(completing_, true)) return done();
    check.swap(check_);
  }
  try {
    if (!error) check();
  } catch (...) {
    error = library_error();
  }
  {
    const MutexLock lock(mutex_);
    check_.swap(check);  // for the completion thread to let go of
    error_ = std::move(error);
    done_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  Completion::wake();
  return true;
}

bool DeviceWork::end(bool look) noexcept {
  if (!done()) {
    if (!look && !told_reached_->load(std::memory_order_acquire)) return false;
    if (!complete_if_reached()) return false;
  }
  std::vector<std::function<void()>> callbacks;
  std::function<void()> check;
  {
    const MutexLock lock(mutex_);
    callbacks.swap(callbacks_);
    check.swap(check_);
  }
  for (auto& callback : callbacks) {
    try {
      callback();
    } catch (...) {
      // As of a request: nobody waits on this thread, and the other callbacks want their call.
    }
  }
  return true;
}

bool DeviceWork::wait_for(std::chrono::nanoseconds timeout) const {
  if (done()) return true;
  check_process();
  timeout = std::max(timeout, std::chrono::nanoseconds(0));
  const auto begin = std::chrono::steady_clock::now();
  while (!complete_if_reached()) {
    const auto left = timeout - (std::chrono::steady_clock::now() - begin);
    if (left <= std::chrono::nanoseconds(0)) return false;
    const MutexLock lock(mutex_);
    if (!done()) changed_.wait_for(mutex_, std::min<std::chrono::nanoseconds>(left, kLookInterval));
  }
  return true;
}

void DeviceWork::wait() const {
  if (done()) return;
  check_process();
  std::exception_ptr error;
  try {
    mark_->wait();  // sooner than by looking
  } catch (...) {
    error = library_error();
  }
  if (complete(std::move(error))) return;
  const MutexLock lock(mutex_);
  while (!done()) changed_.wait(mutex_);
}

void DeviceWork::rethrow() const {
  if (!done() || !error_) return;
  told_ = true;
  std::rethrow_exception(error_);
}

void DeviceWork::on_done(std::function<void()> callback) {
  if (!done()) {
    check_process();
    const MutexLock lock(mutex_);
    if (!done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void DeviceWork::before(Stream stream) {
  if (done()) return rethrow();
  check_process();
  backend(device_.type).wrap_stream(device_.index, stream.raw())->wait_for(*mark_);
}

}  // namespace detail

Future<Unit> Ready::future() const {
  std::shared_ptr<detail::FutureState> state = work_;
  if (!state) state = std::make_shared<detail::Done>();
  return {std::move(state), std::make_shared<Unit>()};
}

}  // namespace headrace
