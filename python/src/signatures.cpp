#include <nanobind/stl/string.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "common.h"
#include "handles.h"

namespace headrace::python {

namespace {

// nanobind's types of functions take no attributes from Python. In a domain of their own
// (python/CMakeLists.txt) they are this module's alone.
void add_signature(nb::handle type, nb::handle property) {
  auto* functions = reinterpret_cast<PyTypeObject*>(type.ptr());
  if (PyDict_SetItemString(functions->tp_dict, "__signature__", property.ptr()) != 0)
    throw nb::python_error();
  PyType_Modified(functions);
}

// Whether it is what nanobind says itself when arguments do not fit, a list of signatures. What a
// callback of the caller raised has passed through Python, and may say anything.
bool is_nanobinds(const nb::python_error& error, nb::handle function) {
  if (!error.type().is(PyExc_TypeError) || error.traceback().is_valid()) return false;
  const nb::object said = nb::str(error.value());
  const nb::object name = nb::str(function.attr("__name__"));
  const std::string begin =
      nb::cast<std::string>(name) + "(): incompatible function arguments. The following";
  return std::string_view(nb::cast<const char*>(said)).starts_with(begin);
}

// It is said in the words of headrace._signatures.misfit. Where these cannot be had, nanobind's are
// left: no error of another kind comes in their place.
void say_what_does_not_fit(PyObject* function,
                           PyObject* const* arguments,
                           std::size_t positional,
                           PyObject* keywords) {
  nb::python_error error;
  try {
    if (is_nanobinds(error, function)) {
      nb::list given;
      for (std::size_t i = 0; i < positional; ++i) given.append(nb::handle(arguments[i]));
      nb::dict named;
      if (keywords != nullptr) {
        for (nb::handle keyword : nb::borrow<nb::tuple>(keywords))
          named[keyword] = nb::handle(arguments[positional++]);
      }
      const nb::object misfit = package_attribute("headrace._signatures", "misfit");
      PyErr_SetObject(PyExc_TypeError, misfit(nb::handle(function), given, named).ptr());
      return;
    }
  } catch (nb::python_error& other) {
    if (!other.matches(PyExc_Exception)) {  // KeyboardInterrupt
      other.restore();
      return;
    }
  } catch (const std::exception&) {
  }
  error.restore();
}

// nanobind has a few functions that call one of its functions, and no hook for the message. `call`
// stands in place of the N-th that was met.
constexpr std::size_t kMostCalls = 8;
std::array<vectorcallfunc, kMostCalls> original_calls = {};

template <std::size_t N>
PyObject* call(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names) {
  PyObject* result = original_calls[N](function, arguments, count, names);
  if (result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) {
    // The highest bits are flags, one of CPython and one of nanobind.
    say_what_does_not_fit(function, arguments, static_cast<std::uint32_t>(count), names);
  }
  return result;
}

template <std::size_t... N>
constexpr std::array<vectorcallfunc, kMostCalls> calls(std::index_sequence<N...>) {
  return {call<N>...};
}

void guard_call(PyObject* function) {
  static constexpr auto kCalls = calls(std::make_index_sequence<kMostCalls>());
  auto* at = reinterpret_cast<char*>(function) + Py_TYPE(function)->tp_vectorcall_offset;
  vectorcallfunc original = nullptr;
  std::memcpy(&original, at, sizeof original);
  for (std::size_t i = 0; i < kMostCalls; ++i) {
    if (original == kCalls[i]) return;
    if (original_calls[i] == nullptr) original_calls[i] = original;
    if (original_calls[i] != original) continue;
    std::memcpy(at, &kCalls[i], sizeof original);
    return;
  }
}

void guard_calls(nb::handle scope, nb::handle functions, nb::handle methods) {
  const nb::object values = nb::steal(PyMapping_Values(nb::object(scope.attr("__dict__")).ptr()));
  for (nb::handle value : values) {
    if (value.type().is(functions) || value.type().is(methods)) guard_call(value.ptr());
    if (PyType_Check(value.ptr())) guard_calls(value, functions, methods);
  }
}

// Of functions, of methods, and of methods with their object.
void add_signatures(nb::handle of_functions, nb::handle of_bound) {
  const nb::object function = nb::cpp_function([] {});
  const nb::object method = nb::type<PyStore>().attr("__dict__")["close"];
  const nb::object core = nb::module_::import_("headrace._core");
  const nb::object store = core.attr("memory_store")();
  add_signature(function.type(), of_functions);
  add_signature(method.type(), of_functions);
  add_signature(store.attr("close").type(), of_bound);
  guard_calls(core, function.type(), method.type());
}

}  // namespace

void bind_signatures(nb::module_& m) {
  m.def("_add_signatures",
        add_signatures,
        nb::sig("def _add_signatures(of_functions: property, of_bound: property) -> None"));
}

}  // namespace headrace::python
