#include "common.h"
#include "numpy_api.h"

namespace headrace::python {

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
  bind_signatures(m);
  bind_shm(m);
  bind_loader(m);
  bind_cells(m);
}

}  // namespace headrace::python
