#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "common.h"

namespace headrace::python {

// A Python reference that any thread may drop: the last owner takes the GIL for it.
std::shared_ptr<void> keep_alive(nb::object object);

// At the end of the process: nothing of Python may be called any more.
bool interpreter_is_gone();

// headrace.Future: a Future<T> of any T, and how its value becomes a Python object.
class PyFuture {
 public:
  template <typename T, typename Convert>
  PyFuture(Future<T> future, Convert convert) {
    auto shared = std::make_shared<Future<T>>(std::move(future));
    done_ = [shared] { return shared->done(); };
    wait_for_ = [shared](std::chrono::nanoseconds timeout) { return shared->wait_for(timeout); };
    cancel_ = [shared] { return shared->cancel(); };
    on_done_ = [shared](std::function<void()> callback) { shared->on_done(std::move(callback)); };
    take_ = [shared, convert = std::move(convert)] { return convert(shared->get()); };
  }

  bool done() const { return done_(); }
  bool cancel() { return cancel_(); }
  void on_done(std::function<void()> callback) { on_done_(std::move(callback)); }
  // Waits without the GIL and handles signals meanwhile. TimeoutError after `timeout` seconds.
  void wait(nb::handle timeout);
  // The value of a request that is done; rethrows its error.
  nb::object value();

 private:
  std::function<bool()> done_;
  std::function<bool(std::chrono::nanoseconds)> wait_for_;
  std::function<bool()> cancel_;
  std::function<void(std::function<void()>)> on_done_;
  std::function<nb::object()> take_;
  nb::object value_;            // of the first value(); a tensor can be taken once
  std::exception_ptr failure_;  // likewise
};

}  // namespace headrace::python
