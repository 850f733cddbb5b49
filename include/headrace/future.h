#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#pragma GCC visibility push(default)
namespace headrace {

namespace detail {

// One asynchronous request: when it is done, and how it ended. The value lies with the request.
class FutureState {
 public:
  virtual ~FutureState() = default;
  virtual bool done() const = 0;
  // True when the request was done within the time.
  virtual bool wait_for(std::chrono::nanoseconds timeout) const = 0;
  virtual void wait() const = 0;
  // Asks the request to stop at the next chunk. False when it was done already.
  virtual bool cancel() = 0;
  // Rethrows the first error of a request that is done.
  virtual void rethrow() const = 0;
  // Calls `callback` once, from the thread that finishes the request, or at once when it is done.
  virtual void on_done(std::function<void()> callback) = 0;
};

}  // namespace detail

// The result of an asynchronous request. Copies share one request; dropping the last does not
// cancel it. A future made before fork() is not valid in the child: waiting raises `cancelled`.
template <typename T>
class Future {
 public:
  Future(std::shared_ptr<detail::FutureState> state, std::shared_ptr<T> value)
      : state_(std::move(state)), value_(std::move(value)) {}

  bool done() const { return state_->done(); }
  bool wait_for(std::chrono::nanoseconds timeout) const { return state_->wait_for(timeout); }
  bool cancel() { return state_->cancel(); }
  void on_done(std::function<void()> callback) { state_->on_done(std::move(callback)); }

  // Waits, rethrows the first error, and moves the value out (once).
  T get() {
    state_->wait();
    state_->rethrow();
    return std::move(*value_);
  }

 private:
  std::shared_ptr<detail::FutureState> state_;
  std::shared_ptr<T> value_;
};

struct Unit {};  // the value of a request that has none

}  // namespace headrace
#pragma GCC visibility pop
