#include "future.h"

#include <nanobind/typing.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

namespace headrace::python {

namespace {

using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

std::optional<Clock::time_point> deadline_from(nb::handle timeout) {
  if (timeout.is_none()) return {};
  const double seconds = nb::cast<double>(timeout);
  if (std::isnan(seconds)) raise(PyExc_ValueError, "timeout: expected a number, got nan");
  constexpr double kYear = 365.0 * 24 * 3600;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::clamp(seconds, 0.0, kYear)));
}

// Runs on the thread that finished the request, which has nobody to raise to.
void call_back(nb::handle function, nb::handle future) noexcept {
  PyObject* result = PyObject_CallOneArg(function.ptr(), future.ptr());
  if (result == nullptr) {
    PyErr_WriteUnraisable(function.ptr());
  } else {
    Py_DECREF(result);
  }
}

void add_done_callback(nb::handle self, nb::object function) {
  auto kept = keep_alive(nb::make_tuple(function, nb::borrow(self)));
  auto callback = [kept] {
    if (interpreter_is_gone()) return;
    nb::gil_scoped_acquire gil;
    auto* pair = static_cast<PyObject*>(kept.get());
    call_back(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
  };
  auto& future = nb::cast<PyFuture&>(self);
  nb::gil_scoped_release release;
  future.on_done(std::move(callback));
}

nb::object exception(nb::handle self, nb::handle timeout) {
  nb::cast<PyFuture&>(self).wait(timeout);
  // Raised and caught in Python, where Error has become an exception of its class.
  return package_attribute("headrace._async", "exception_of")(self);
}

constexpr const char* kFutureDoc = R"(The result of an asynchronous read or write.

Dropping it does not cancel the request. A future made before ``os.fork()`` is not valid in the
child: waiting there raises `CancelledError`. It can be awaited from any asyncio loop.

Examples
--------
>>> future = array.read_async(np.s_[0:10])
>>> future.result(timeout=5)
)";

}  // namespace

bool interpreter_is_gone() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

std::shared_ptr<void> keep_alive(nb::object object) {
  return std::shared_ptr<void>(object.release().ptr(), [](void* kept) {
    if (interpreter_is_gone()) return;
    nb::gil_scoped_acquire gil;
    Py_DECREF(static_cast<PyObject*>(kept));
  });
}

void PyFuture::wait(nb::handle timeout) {
  const auto deadline = deadline_from(timeout);
  constexpr nanoseconds kSignalInterval = std::chrono::milliseconds(50);
  if (done_()) return;
  while (true) {
    nanoseconds step = kSignalInterval;
    if (deadline) {
      step = std::min(step, std::chrono::duration_cast<nanoseconds>(*deadline - Clock::now()));
    }
    {
      nb::gil_scoped_release release;
      if (wait_for_(std::max(step, nanoseconds(0)))) return;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (deadline && Clock::now() >= *deadline) {
      raise(PyExc_TimeoutError, "the request is not done yet");
    }
  }
}

nb::object PyFuture::value() {
  if (failure_) std::rethrow_exception(failure_);
  if (!value_.is_valid()) {
    try {
      value_ = take_();
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }
  return value_;
}

void bind_future(nb::module_& m) {
  m.attr("_T") = nb::type_var("_T");
  nb::class_<PyFuture>(
      m, "Future", nb::is_generic(), nb::sig("class Future(typing.Generic[_T])"), kFutureDoc)
      .def(
          "result",
          [](PyFuture& self, nb::handle timeout) {
            self.wait(timeout);
            return self.value();
          },
          nb::arg("timeout") = nb::none(),
          nb::sig("def result(self, timeout: float | None = None) -> _T"),
          "Wait and return the result; `TimeoutError` after ``timeout`` seconds. The first error "
          "of the request is raised.")
      .def("exception",
           exception,
           nb::arg("timeout") = nb::none(),
           nb::sig("def exception(self, timeout: float | None = None) -> BaseException | None"),
           "Wait and return what `result` would raise, or None.")
      .def("done", &PyFuture::done, "Whether the request has ended, well or not.")
      .def("cancel",
           &PyFuture::cancel,
           nb::call_guard<nb::gil_scoped_release>(),
           "Ask the request to stop at the next chunk. False when it was done already.")
      .def(
          "add_done_callback",
          add_done_callback,
          nb::arg("fn"),
          nb::sig("def add_done_callback(self, fn: collections.abc.Callable[[Future[_T]], object]) "
                  "-> None"),
          "Call ``fn(future)`` once, from the thread that finishes the request, or at once.")
      .def(
          "__await__",
          [](nb::handle self) {
            return package_attribute("headrace._async", "wait")(self).attr("__await__")();
          },
          nb::sig("def __await__(self) -> collections.abc.Generator[typing.Any, None, _T]"));
}

}  // namespace headrace::python
