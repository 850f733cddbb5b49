#include <headrace/config.h>
#include <nanobind/stl/string.h>

#include "common.h"

namespace headrace::python {

namespace {

nb::dict get_config() {
  const Config current = config();
  nb::dict result;
  result["threads"] = current.threads;
  result["memory_budget"] = current.memory_budget;
  result["coalesce_gap"] = current.coalesce_gap;
  result["coalesce_run"] = current.coalesce_run;
  nb::dict implementations;
  for (const auto& [codec, name] : current.implementations) implementations[codec.c_str()] = name;
  result["implementations"] = implementations;
  result["device"] = current.device;
  return result;
}

// All fields, so that a context manager restores exactly what it found.
void install_config(nb::handle values) {
  Config next;
  next.threads = nb::cast<int>(nb::object(values["threads"]));
  next.memory_budget = nb::cast<std::size_t>(nb::object(values["memory_budget"]));
  next.coalesce_gap = nb::cast<std::size_t>(nb::object(values["coalesce_gap"]));
  next.coalesce_run = nb::cast<std::size_t>(nb::object(values["coalesce_run"]));
  next.implementations = implementations_from_python(nb::object(values["implementations"]));
  next.device = nb::cast<std::string>(nb::object(values["device"]));
  set_config(next);
}

}  // namespace

void bind_config(nb::module_& m) {
  m.def("get_config", get_config, nb::sig("def get_config() -> dict[str, typing.Any]"));
  m.def("set_config",
        install_config,
        nb::arg("values"),
        nb::sig("def set_config(values: dict[str, typing.Any]) -> None"));
  m.def("version", version);
  m.def("doctor_json", [] {
    nb::gil_scoped_release release;
    return doctor_json();
  });
}

}  // namespace headrace::python
