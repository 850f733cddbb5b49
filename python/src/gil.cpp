#include "gil.h"

#include <headrace/error.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace headrace::python {

namespace {

// Where the functions of atexit run, which is where the interpreter is ended.
std::atomic<std::thread::id> g_ending_thread{};
std::atomic<int> g_calls{0};
std::atomic<bool> g_refuses{false};
std::atomic<unsigned long> g_main_thread{0};

bool is_ending_thread() { return g_ending_thread.load() == std::this_thread::get_id(); }

// True when no call was under way within the time.
bool are_calls_done(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (g_calls.load() > 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Requests that nobody waits for may be under way: those that end at once do.
void end_calls() {
  g_ending_thread.store(std::this_thread::get_id());
  nb::gil_scoped_release release;
  if (are_calls_done(std::chrono::milliseconds(200))) return;
  g_refuses.store(true);
  are_calls_done(std::chrono::seconds(5));
}

}  // namespace

bool interpreter_is_gone() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

void watch_for_the_end() {
  g_main_thread.store(nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident")));
  // A child has no thread but the one that forked.
  pthread_atfork(nullptr, nullptr, [] {
    g_calls.store(0);
    g_main_thread.store(PyThread_get_thread_ident());
  });
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(end_calls));
}

bool calls_are_refused() { return g_refuses.load() && !is_ending_thread(); }

PythonCall::PythonCall() {
  g_calls.fetch_add(1);
  if (!calls_are_refused()) return;
  g_calls.fetch_sub(1);
  throw Error(ErrorCode::cancelled, "the request was cut off by the end of the interpreter");
}

PythonCall::~PythonCall() { g_calls.fetch_sub(1); }

GilIfAlive::GilIfAlive() noexcept : alive_(!interpreter_is_gone()) {
  if (alive_) state_ = PyGILState_Ensure();
}

GilIfAlive::~GilIfAlive() {
  if (alive_) PyGILState_Release(state_);
}

void check_signals() {
  if (PyThread_get_thread_ident() != g_main_thread.load(std::memory_order_relaxed)) return;
  nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

namespace nb {

gil_scoped_release::~gil_scoped_release() {
  // A daemon thread's request was cut off: that is no error to tell of.
  if (calls_are_refused()) wait_for_the_end();
  PyEval_RestoreThread(state_);
}

gil_scoped_acquire::gil_scoped_acquire() {
  // Finalizers of objects still run where the interpreter is ended, and may read.
  if (interpreter_is_gone() && !is_ending_thread())
    throw Error(ErrorCode::cancelled, "the request was cut off by the end of the interpreter");
  state_ = PyGILState_Ensure();
}

gil_scoped_acquire::~gil_scoped_acquire() { PyGILState_Release(state_); }

}  // namespace nb

}  // namespace headrace::python
