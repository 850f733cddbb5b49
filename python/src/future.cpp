#include "future.h"

#include <nanobind/stl/string.h>
#include <nanobind/typing.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "errors.h"

namespace headrace::python {

namespace {

using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

// How often a thread that waits looks for signals.
constexpr nanoseconds kSignalInterval = std::chrono::milliseconds(50);

std::optional<Clock::time_point> deadline_from(nb::handle timeout) {
  if (timeout.is_none()) return {};
  const auto seconds = argument<double>(timeout, "timeout", "a number of seconds or None");
  if (std::isnan(seconds)) raise(PyExc_ValueError, "timeout: expected a number, got nan");
  constexpr double kYear = 365.0 * 24 * 3600;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::clamp(seconds, 0.0, kYear)));
}

// Runs on the thread that finished the request, which has nobody to raise to.
void call_back(nb::handle function, nb::handle future) {
  PyObject* result = PyObject_CallOneArg(function.ptr(), future.ptr());
  if (result == nullptr) {
    PyErr_WriteUnraisable(function.ptr());
  } else {
    Py_DECREF(result);
  }
}

void add_done_callback(nb::handle self, nb::object function) {
  if (PyCallable_Check(function.ptr()) == 0) raise_wrong_type("fn", "a function", function);
  auto kept = keep_alive(nb::make_tuple(function, nb::borrow(self)));
  auto callback = [kept] {
    const GilIfAlive gil;
    if (!gil) return;
    auto* pair = static_cast<PyObject*>(kept.get());
    call_back(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
  };
  nb::cast<PyFuture&>(self).on_done(std::move(callback));
}

int traverse_future(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<PyFuture>(self)->traverse(visit, arg) : 0;
}

int clear_future(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<PyFuture>(self)->clear();
  return 0;
}

PyType_Slot future_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_future)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_future)},
    {0, nullptr},
};

constexpr const char* kFutureDoc = R"(The result of an asynchronous read or write.

Dropping it does not cancel the request. A future made before ``os.fork()`` is not valid in the
child: waiting there raises `CancelledError`. It can be awaited from any asyncio loop.

Examples
--------
>>> future = array.read_async(np.s_[0:10])
>>> future.result(timeout=5)
)";

}  // namespace

std::shared_ptr<void> keep_alive(nb::object object) {
  return std::shared_ptr<void>(object.release().ptr(), [](void* kept) {
    const GilIfAlive gil;
    if (!gil) return;
    Py_DECREF(static_cast<PyObject*>(kept));
  });
}

void wait_with_signals(nb::handle timeout, const std::function<bool(nanoseconds step)>& wait_for) {
  const auto deadline = deadline_from(timeout);
  while (true) {
    nanoseconds step = kSignalInterval;
    if (deadline) {
      step = std::min(step, std::chrono::duration_cast<nanoseconds>(*deadline - Clock::now()));
    }
    {
      nb::gil_scoped_release release;
      if (wait_for(std::max(step, nanoseconds(0)))) return;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (deadline && Clock::now() >= *deadline) {
      raise(PyExc_TimeoutError, "the request is not done yet");
    }
  }
}

bool PyFuture::cancel() {
  const auto request = request_;
  nb::gil_scoped_release release;
  return request && request->cancel();
}

void PyFuture::on_done(std::function<void()> callback) {
  const auto request = request_;
  nb::gil_scoped_release release;
  if (request) {
    request->on_done(std::move(callback));
  } else {
    callback();
  }
}

void PyFuture::wait(nb::handle timeout) {
  const auto request = request_;
  if (!request || request->done()) {
    static_cast<void>(deadline_from(timeout));  // for what is no timeout
    return;
  }
  check_caller(origin_);
  wait_with_signals(timeout, request->wait_for);
}

// Only one thread takes: the tensor can be moved once, and making Python objects of it may let go
// of the GIL. The others wait without the GIL, which the one may need.
void PyFuture::take() {
  if (turn_->holder == std::this_thread::get_id())
    raise(PyExc_RuntimeError, "result: asked for by what runs while the result is made");
  std::unique_lock lock(turn_->mutex, std::try_to_lock);
  while (!lock.owns_lock()) {
    {
      nb::gil_scoped_release release;
      static_cast<void>(lock.try_lock_for(kSignalInterval));
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  if (is_taken()) return;
  if (!request_) raise(PyExc_RuntimeError, "result: the future was collected as garbage");
  turn_->holder = std::this_thread::get_id();
  try {
    value_ = request_->take();
  } catch (...) {
    exception_ = exception_object(std::current_exception());
    nb::object traceback = nb::steal(PyException_GetTraceback(exception_.ptr()));
    traceback_ = traceback.is_valid() ? std::move(traceback) : nb::none();
  }
  turn_->holder = std::thread::id();
  request_ = nullptr;  // with the memory that elements of variable length were in
}

nb::object PyFuture::value() {
  if (!is_taken()) take();
  if (exception_.is_valid()) raise_again(exception_, traceback_);
  return value_;
}

nb::object PyFuture::exception() {
  if (!is_taken()) take();
  return exception_.is_valid() ? exception_ : nb::none();
}

int PyFuture::traverse(visitproc visit, void* arg) const {
  Py_VISIT(value_.ptr());
  Py_VISIT(exception_.ptr());
  Py_VISIT(traceback_.ptr());
  return 0;
}

void PyFuture::clear() {
  // Nobody refers to the future any more but what it refers to: nobody asks for these again.
  nb::object(std::move(value_)).reset();
  nb::object(std::move(exception_)).reset();
  nb::object(std::move(traceback_)).reset();
}

void bind_future(nb::module_& m) {
  m.attr("_T") = nb::type_var("_T");
  nb::class_<PyFuture>(m,
                       "Future",
                       kFutureDoc,
                       nb::is_generic(),
                       nb::sig("class Future(typing.Generic[_T])"),
                       nb::is_weak_referenceable(),
                       nb::type_slots(future_slots))
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
      .def(
          "exception",
          [](PyFuture& self, nb::handle timeout) {
            self.wait(timeout);
            return self.exception();
          },
          nb::arg("timeout") = nb::none(),
          nb::sig("def exception(self, timeout: float | None = None) -> BaseException | None"),
          "Wait and return what `result` would raise, or None.")
      .def(
          "__repr__",
          [](PyFuture& self) {
            return std::string("<headrace.Future ") + (self.done() ? "done>" : "running>");
          },
          nb::sig("def __repr__(self) -> str"))
      .def("done", &PyFuture::done, "Whether the request has ended, well or not.")
      .def("cancel",
           &PyFuture::cancel,
           "Ask the request to stop at the next chunk. False when it was done already.")
      .def(
          "add_done_callback",
          add_done_callback,
          nb::arg("fn").none(),
          nb::sig("def add_done_callback(self, fn: collections.abc.Callable[[Future[_T]], object]) "
                  "-> None"),
          "Call ``fn(future)`` once, from the thread that finishes the request, or at once. It may "
          "wait "
          "for other requests.")
      .def(
          "__await__",
          [](nb::handle self) {
            return package_attribute("headrace._async", "wait")(self).attr("__await__")();
          },
          nb::sig("def __await__(self) -> collections.abc.Generator[typing.Any, None, _T]"));
}

}  // namespace headrace::python
