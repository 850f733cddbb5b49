#include "common.h"
#include "handles.h"
#include "numpy_api.h"

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

// Of functions, of methods, and of methods with their object.
void add_signatures(nb::handle of_functions, nb::handle of_bound) {
  const nb::object function = nb::cpp_function([] {});
  const nb::object method = nb::type<PyStore>().attr("__dict__")["close"];
  const nb::object store = nb::module_::import_("headrace._core").attr("memory_store")();
  add_signature(function.type(), of_functions);
  add_signature(method.type(), of_functions);
  add_signature(store.attr("close").type(), of_bound);
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The C++ part of headrace. Import headrace instead.";
  // At the end of a process others hold what is not theirs to free: torch the data set of a worker
  // that was spawned, the threads that a fork left behind what was on their stacks.
  nb::set_leak_warnings(false);
  watch_for_the_end();
  numpy();  // before any thread: importing under the guard of a static would deadlock
  bind_errors();
  bind_tensor(m);
  bind_device_array(m);
  bind_future(m);
  bind_store(m);
  bind_python_store(m);
  add_python_codecs();
  bind_array(m);
  bind_arrow_device(m);
  bind_group(m);
  bind_create(m);
  bind_codecs(m);
  bind_config(m);
  bind_rechunk(m);
  bind_trace(m);
  m.def("calls_are_refused", calls_are_refused);
  m.def("_add_signatures",
        add_signatures,
        nb::sig("def _add_signatures(of_functions: property, of_bound: property) -> None"));
  bind_shm(m);
  bind_loader(m);
  bind_cells(m);
}

}  // namespace headrace::python
