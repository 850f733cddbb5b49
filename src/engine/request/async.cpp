#include "engine/request/async.h"

#include <chrono>
#include <new>
#include <stdexcept>
#include <string>

#include "base/mutex.h"

namespace headrace {

struct RequestState::Sync {
  Mutex mutex;
  ConditionVariable finished;
  std::vector<std::function<void()>> callbacks GUARDED_BY(mutex);
};

RequestState::RequestState() : generation_(fork_generation()), sync_(std::make_unique<Sync>()) {}

RequestState::~RequestState() {
  // In a child the lock may be held, and the condition waited for, by threads that it lacks: glibc
  // would wait for them in the destructor.
  if (generation_ != fork_generation()) static_cast<void>(sync_.release());
}

void RequestState::check_process() const {
  if (generation_ != fork_generation()) {
    throw Error(ErrorCode::cancelled,
                "a request made before fork() cannot be waited for in the child");
  }
}

bool RequestState::done() const { return done_.load(std::memory_order_acquire); }

bool RequestState::wait_for(std::chrono::nanoseconds timeout) const {
  if (done()) return true;
  check_process();
  // A deadline past the end of the clock would wrap and be over at once.
  const auto now = std::chrono::steady_clock::now();
  if (timeout > std::chrono::steady_clock::time_point::max() - now) {
    wait();
    return true;
  }
  const auto deadline = now + timeout;
  const TaskWait waiting(this);
  MutexLock lock(sync_->mutex);
  while (!done()) {
    if (!sync_->finished.wait_until(sync_->mutex, deadline)) return done();
  }
  return true;
}

void RequestState::wait() const {
  if (done()) return;
  check_process();
  const TaskWait waiting(this);
  MutexLock lock(sync_->mutex);
  while (!done()) sync_->finished.wait(sync_->mutex);
}

bool RequestState::cancel() {
  if (done()) return false;
  cancelled_.store(true, std::memory_order_relaxed);
  return true;
}

void RequestState::rethrow() const {
  if (done() && error_) std::rethrow_exception(error_);
}

void RequestState::on_done(std::function<void()> callback) {
  if (!done()) {
    check_process();
    MutexLock lock(sync_->mutex);
    if (!done()) {
      sync_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void RequestState::finish(std::exception_ptr error) {
  std::vector<std::function<void()>> callbacks;
  {
    MutexLock lock(sync_->mutex);
    if (done()) return;
    error_ = std::move(error);
    done_.store(true, std::memory_order_release);
    callbacks.swap(sync_->callbacks);
    sync_->finished.notify_all();
  }
  for (auto& callback : callbacks) {
    try {
      callback();
    } catch (...) {
      // The request has ended well or badly already, and nobody waits on this thread: there is
      // no one to tell, and the other callbacks still want their call.
    }
  }
}

std::exception_ptr current_error() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return std::make_exception_ptr(Error(ErrorCode::out_of_memory, "out of memory"));
  } catch (const std::length_error& error) {
    return std::make_exception_ptr(
        Error(ErrorCode::out_of_memory, std::string("out of memory: ") + error.what()));
  } catch (...) {
    return std::current_exception();
  }
}

void check_cancelled(const CancelFlag& flag) {
  if (flag.load(std::memory_order_relaxed)) {
    throw Error(ErrorCode::cancelled, "the request was cancelled");
  }
}

}  // namespace headrace
