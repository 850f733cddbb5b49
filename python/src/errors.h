#pragma once

// What crosses between Python's exceptions and headrace's errors.

#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "common.h"

namespace headrace::python {

// The exception object that a caller in Python would get for it.
nb::object exception_object(const std::exception_ptr& failure);

// Raises an exception object that may have been raised before: with the traceback that it had
// then, to which each raise adds.
[[noreturn]] void raise_again(nb::handle exception, nb::handle traceback);

// What code of the application raised, on its way through the library: nb::python_error can be
// raised once only, and a request may fail for several callers.
class ApplicationError : public std::exception {
 public:
  explicit ApplicationError(nb::python_error& raised);
  const char* what() const noexcept override { return message_.c_str(); }
  nb::handle exception() const { return static_cast<PyObject*>(exception_.get()); }

 private:
  std::string message_;
  std::shared_ptr<void> exception_;
};

// Calls code of the application, with the GIL.
template <typename Function>
auto call_application(Function&& function) {
  const PythonCall call;
  nb::gil_scoped_acquire gil;
  try {
    return function();
  } catch (nb::python_error& raised) {
    throw ApplicationError(raised);
  }
}

// A value in a few words for a message: itself where that is short, else its type.
std::string described(nb::handle value);

// TypeError: "threads: expected an integer, got 'many'".
[[noreturn]] void raise_wrong_type(const char* name, const char* wanted, nb::handle value);

// ValueError where it is an integer, which then has no room in `bits`: "seed: expected 0 or more".
void raise_if_integer(const char* name, bool is_signed, std::size_t bits, nb::handle value);

// An argument, or a TypeError or ValueError that names it.
template <typename T>
T argument(nb::handle value, const char* name, const char* wanted) {
  try {
    return nb::cast<T>(value);
  } catch (const nb::cast_error&) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      raise_if_integer(name, std::is_signed_v<T>, 8 * sizeof(T), value);
    raise_wrong_type(name, wanted, value);
  }
}

}  // namespace headrace::python
