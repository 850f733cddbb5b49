#include "device/device_work.h"

#include <algorithm>
#include <utility>

#include "base/thread_pool.h"
#include "headrace/device.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// After which a thread that waits looks for itself: a device that has failed tells nobody.
constexpr std::chrono::nanoseconds kLookInterval = std::chrono::milliseconds(20);

struct LostErrors {
  Mutex mutex;
  std::function<void(const Error&)> handler GUARDED_BY(mutex);

  static LostErrors& get() {
    static auto* errors = new LostErrors;  // never destroyed: work may outlive statics
    return *errors;
  }
};

void tell_lost(const std::exception_ptr& failure) {
  std::function<void(const Error&)> handler;
  {
    LostErrors& lost = LostErrors::get();
    const MutexLock lock(lost.mutex);
    handler = lost.handler;
  }
  if (!handler) return;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    handler(error);
  } catch (const std::exception& error) {
    handler(Error(ErrorCode::device, error.what()));
  }
}

}  // namespace

void set_lost_error_handler(std::function<void(const Error& error)> handler) {
  LostErrors& lost = LostErrors::get();
  const MutexLock lock(lost.mutex);
  lost.handler = std::move(handler);
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
      check_(std::move(check)) {}

std::shared_ptr<DeviceWork> DeviceWork::start(Device device,
                                              Queue& queue,
                                              Stream stream,
                                              std::function<void()> check) {
  std::shared_ptr<DeviceWork> work(new DeviceWork(device, stream, queue.mark(), std::move(check)));
  work->before(stream);
  // The driver's threads may not call the driver, as letting go of memory does.
  queue.notify([work] { run_async([work] { work->complete(); }); });
  return work;
}

DeviceWork::~DeviceWork() {
  if (done_ && error_ && !told_) tell_lost(error_);
}

void DeviceWork::check_process() const {
  if (generation_ != fork_generation()) {
    throw Error(ErrorCode::cancelled,
                "work of a device that was queued before fork() cannot be waited for in the child");
  }
}

// As well when the device has failed: waiting tells.
bool DeviceWork::is_reached() const noexcept {
  try {
    return mark_->is_reached();
  } catch (const Error&) {
    return true;
  }
}

bool DeviceWork::done() const { return done_.load(std::memory_order_acquire); }

void DeviceWork::complete() const {
  std::exception_ptr error;
  try {
    mark_->wait();
  } catch (...) {
    error = std::current_exception();
  }
  std::function<void()> check;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(completing_, true)) {
      while (!done()) changed_.wait(mutex_);
      return;
    }
    check = std::exchange(check_, nullptr);
  }
  try {
    if (!error) check();
  } catch (...) {
    error = std::current_exception();
  }
  check = nullptr;  // what it kept is let go before anybody hears that the work is done
  std::vector<std::function<void()>> callbacks;
  {
    const MutexLock lock(mutex_);
    error_ = std::move(error);
    done_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
    changed_.notify_all();
  }
  for (auto& callback : callbacks) {
    try {
      callback();
    } catch (...) {
      // As of a request: nobody waits on this thread, and the other callbacks want their call.
    }
  }
}

bool DeviceWork::wait_for(std::chrono::nanoseconds timeout) const {
  if (done()) return true;
  check_process();
  const auto begin = std::chrono::steady_clock::now();
  while (!done()) {
    if (is_reached()) {
      complete();
      return true;
    }
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
  complete();
}

void DeviceWork::rethrow() const {
  if (!done() || !error_) return;
  told_ = true;
  std::rethrow_exception(error_);
}

void DeviceWork::on_done(std::function<void()> callback) {
  {
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
