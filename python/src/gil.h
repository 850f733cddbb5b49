#pragma once

// The GIL at the end of the interpreter. There, CPython before 3.14 ends every thread but one that
// asks for the GIL by pthread_exit, which unwinds the stack: through destructors and functions that
// must not throw, so that the process aborts. Such a thread is left waiting for the end of the
// process instead, as CPython does since 3.14 with its own: python_api.cpp sees to it in all that
// the module calls of CPython.

#include <headrace/interrupt.h>
#include <nanobind/nanobind.h>

#include <chrono>
#include <thread>
#include <type_traits>

namespace headrace::python {

// For a thread that the interpreter's end has overtaken: what it holds stays as it is.
[[noreturn]] inline void wait_for_the_end() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Calls what may take the GIL. What stops the unwinding is a destructor: a handler could not while
// the thread is in another one (libstdc++ ends the process), as when a C++ exception that keeps a
// Python object is let go of.
template <typename Call>
auto never_unwound(Call call) {
  struct Stop {
    bool is_unwinding = true;
    ~Stop() {
      if (is_unwinding) wait_for_the_end();
    }
  } stop;
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    stop.is_unwinding = false;
  } else {
    const auto result = call();
    stop.is_unwinding = false;
    return result;
  }
}

// At the end of the process: nothing of Python may be called any more, but by the thread that
// ends the interpreter.
bool interpreter_is_gone();

// Called once, when the module is imported. When the functions of atexit run, all threads that
// Python waits for have ended: calls of Python code by other threads are let finish, and begin no
// more. Inside one, CPython's end of the thread would unwind the library, too.
void watch_for_the_end();

// Whether calls of Python code are refused, since the interpreter ends.
bool calls_are_refused();

// One call of Python code by the library, a store's or a codec's, from before the GIL is taken.
// Throws Error (cancelled) when calls are refused.
class PythonCall {
 public:
  PythonCall();
  ~PythonCall();
  PythonCall(const PythonCall&) = delete;
  PythonCall& operator=(const PythonCall&) = delete;
};

// The GIL for threads that may have nothing to do with Python, where there is nobody to throw to:
// destructors and callbacks. False when the interpreter is gone; they do without, then.
class GilIfAlive {
 public:
  GilIfAlive() noexcept;
  ~GilIfAlive();
  GilIfAlive(const GilIfAlive&) = delete;
  GilIfAlive& operator=(const GilIfAlive&) = delete;
  explicit operator bool() const { return alive_; }

 private:
  bool alive_;
  PyGILState_STATE state_{};
};

// Throws what a handler of Python's signals raises. Without the GIL; on the main thread, which is
// the one that Python hears signals on.
void check_signals();

// nanobind under its short name, but for the two types that take and release the GIL: all code of
// the bindings that says nb::gil_scoped_release has this one.
namespace nb {

using namespace nanobind;

// What waits for a store without the GIL hears signals.
class gil_scoped_release {
 public:
  gil_scoped_release() noexcept : state_(PyEval_SaveThread()), signals_(check_signals) {}
  ~gil_scoped_release();
  gil_scoped_release(const gil_scoped_release&) = delete;
  gil_scoped_release& operator=(const gil_scoped_release&) = delete;

 private:
  PyThreadState* state_;
  InterruptScope signals_;
};

// Throws Error (cancelled) when the interpreter is gone, so that the request ends.
class gil_scoped_acquire {
 public:
  gil_scoped_acquire();
  ~gil_scoped_acquire();
  gil_scoped_acquire(const gil_scoped_acquire&) = delete;
  gil_scoped_acquire& operator=(const gil_scoped_acquire&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace nb

}  // namespace headrace::python
