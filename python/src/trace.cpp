#include <headrace/trace.h>
#include <nanobind/stl/string.h>

#include "common.h"

namespace headrace::python {

void bind_trace(nb::module_& m) {
  nb::class_<Trace>(m, "Trace")
      .def(nb::init<std::string>(), nb::arg("path"))
      .def("finish", &Trace::finish, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace headrace::python
