#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "handles.h"

namespace headrace::python {

// Calls wait_for(step) without the GIL until it is true, and handles signals between.
// TimeoutError after `timeout` seconds.
void wait_with_signals(nb::handle timeout,
                       const std::function<bool(std::chrono::nanoseconds step)>& wait_for);

// A Python reference that any thread may drop: the last owner takes the GIL for it.
std::shared_ptr<void> keep_alive(nb::object object);

// headrace.Future: a Future<T> of any T, and how its value becomes a Python object.
class PyFuture {
 public:
  template <typename T, typename Convert>
  PyFuture(Future<T> future, std::shared_ptr<const Origin> origin, Convert convert)
      : origin_(std::move(origin)) {
    auto shared = std::make_shared<Future<T>>(std::move(future));
    request_ = std::make_shared<Request>(Request{
        [shared] { return shared->done(); },
        [shared](std::chrono::nanoseconds timeout) { return shared->wait_for(timeout); },
        [shared] { return shared->cancel(); },
        [shared](std::function<void()> callback) { shared->on_done(std::move(callback)); },
        [shared, convert = std::move(convert)] { return convert(shared->get()); },
    });
  }

  // These are called with the GIL; the last two let go of it.
  bool done() const { return !request_ || request_->done(); }
  bool cancel();
  void on_done(std::function<void()> callback);
  // Waits without the GIL and handles signals meanwhile. TimeoutError after `timeout` seconds.
  void wait(nb::handle timeout);
  // The value of a request that is done, the same object for everyone who asks; raises its error,
  // likewise.
  nb::object value();
  // What value() would raise, or None.
  nb::object exception();

  // For the garbage collector: a traceback may lead back to the future.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  void take();
  bool is_taken() const { return value_.is_valid() || exception_.is_valid(); }

  std::shared_ptr<const Origin> origin_;
  struct Request {
    std::function<bool()> done;
    std::function<bool(std::chrono::nanoseconds)> wait_for;
    std::function<bool()> cancel;
    std::function<void(std::function<void()>)> on_done;
    std::function<nb::object()> take;
  };
  // Null when the result was taken: what failed in Python is known to the request, too, where the
  // garbage collector does not see it.
  std::shared_ptr<const Request> request_;
  // Whose turn it is to take; held without the GIL, too.
  struct Turn {
    std::timed_mutex mutex;
    std::atomic<std::thread::id> holder{};
  };
  std::unique_ptr<Turn> turn_ = std::make_unique<Turn>();
  nb::object value_;      // of the first value(); a tensor can be taken once
  nb::object exception_;  // likewise
  nb::object traceback_;  // that it had when it was raised first
};

}  // namespace headrace::python
