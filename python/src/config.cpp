#include <headrace/config.h>
#include <nanobind/stl/string.h>

#include "common.h"
#include "docs.h"
#include "errors.h"
#include "future.h"

namespace headrace::python {

namespace {

nb::dict get_config() {
  const Config current = config();
  nb::dict result;
  result["threads"] = current.threads;
  result["memory_budget"] = current.memory_budget;
  result["coalesce_gap"] = current.coalesce_gap;
  result["coalesce_run"] = current.coalesce_run;
  result["io_depth"] = current.io_depth;
  result["io_nbytes"] = current.io_nbytes;
  result["lock_timeout"] = current.lock_timeout;
  nb::dict implementations;
  for (const auto& [codec, name] : current.implementations) implementations[codec.c_str()] = name;
  result["implementations"] = implementations;
  result["device"] = current.device;
  result["device_min_decode_nbytes"] = nb::none();
  if (current.device_min_decode_nbytes)
    result["device_min_decode_nbytes"] = *current.device_min_decode_nbytes;
  result["device_slab_nbytes"] = current.device_slab_nbytes;
  result["device_zstd_block_nbytes"] = current.device_zstd_block_nbytes;
  result["gds"] = current.gds;
  result["device_rates"] = current.device_rates;
  result["device_mapped"] = current.device_mapped;
  result["device_mapped_nbytes"] = current.device_mapped_nbytes;
  return result;
}

template <typename T>
T setting(nb::handle values, const char* name, const char* wanted) {
  return argument<T>(nb::object(values[name]), name, wanted);
}

std::size_t size_setting(nb::handle values, const char* name) {
  return setting<std::size_t>(values, name, "a number of bytes");
}

// All fields: what a change leaves out stays as it is by the caller's doing.
void install_config(nb::handle values) {
  Config next;
  next.threads = setting<int>(values, "threads", "a number of threads");
  next.memory_budget = size_setting(values, "memory_budget");
  next.coalesce_gap = size_setting(values, "coalesce_gap");
  next.coalesce_run = size_setting(values, "coalesce_run");
  next.io_depth = setting<std::size_t>(values, "io_depth", "a number of requests");
  next.io_nbytes = size_setting(values, "io_nbytes");
  next.lock_timeout = setting<std::size_t>(values, "lock_timeout", "a number of seconds");
  next.implementations = implementations_from_python(nb::object(values["implementations"]));
  next.device = setting<std::string>(values, "device", "a name such as \"cpu\" or \"cuda:0\"");
  const nb::object limit = values["device_min_decode_nbytes"];
  if (!limit.is_none())
    next.device_min_decode_nbytes = size_setting(values, "device_min_decode_nbytes");
  next.device_slab_nbytes = size_setting(values, "device_slab_nbytes");
  next.device_zstd_block_nbytes = size_setting(values, "device_zstd_block_nbytes");
  next.gds = setting<std::string>(values, "gds", "\"off\", \"auto\" or \"on\"");
  next.device_rates = setting<std::string>(values, "device_rates", "\"measured\" or \"built-in\"");
  next.device_mapped = setting<std::string>(values, "device_mapped", "\"off\" or \"on\"");
  next.device_mapped_nbytes = size_setting(values, "device_mapped_nbytes");
  // What is let go of may take the driver a while.
  nb::gil_scoped_release release;
  set_config(next);
}

// allocate(nbytes, stream) -> address, free(address, nbytes, stream).
void set_allocator_from_python(nb::handle device, nb::object allocate, nb::object free) {
  for (const nb::handle function : {nb::handle(allocate), nb::handle(free)}) {
    if (!function.is_none() && PyCallable_Check(function.ptr()) == 0)
      raise_wrong_type("set_allocator", "functions or None", function);
  }
  Allocator allocator;
  if (!allocate.is_none()) {
    allocator.allocate = [function = keep_alive(std::move(allocate))](std::size_t nbytes,
                                                                      Stream stream) {
      nb::gil_scoped_acquire gil;
      try {
        nb::handle call(static_cast<PyObject*>(function.get()));
        const auto raw = reinterpret_cast<std::uintptr_t>(stream.raw());
        return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(call(nbytes, raw)));
      } catch (nb::python_error& error) {
        // Requests end on threads that hold no GIL, which a Python error needs to the last.
        throw Error(ErrorCode::out_of_memory,
                    std::string("the allocator that was set: ") + error.what());
      }
    };
  }
  if (!free.is_none()) {
    allocator.free = [function = keep_alive(std::move(free))](
                         void* memory, std::size_t nbytes, Stream stream) {
      const GilIfAlive gil;
      if (!gil) return;
      nb::handle call(static_cast<PyObject*>(function.get()));
      try {
        call(reinterpret_cast<std::uintptr_t>(memory),
             nbytes,
             reinterpret_cast<std::uintptr_t>(stream.raw()));
      } catch (nb::python_error& error) {
        error.restore();
        PyErr_WriteUnraisable(call.ptr());  // whoever lets memory go cannot be told
      }
    };
  }
  const Device target = device_from_python(device);
  nb::gil_scoped_release release;
  set_allocator(target, allocator);
}

}  // namespace

void bind_config(nb::module_& m) {
  m.def("get_config", get_config, nb::sig("def get_config() -> dict[str, typing.Any]"));
  m.def("set_config",
        install_config,
        nb::arg("values"),
        nb::sig("def set_config(values: dict[str, typing.Any]) -> None"));
  m.def("set_allocator",
        set_allocator_from_python,
        nb::arg("device").none(),
        nb::arg("allocate").none(),
        nb::arg("free").none(),
        nb::sig("def set_allocator(device: str, "
                "allocate: collections.abc.Callable[[int, int], int] | None, "
                "free: collections.abc.Callable[[int, int, int], object] | None) -> None"),
        docs::kSetAllocator);
  m.def(
      "check_device",
      [](nb::handle device) { static_cast<void>(device_from_python(device)); },
      nb::arg("device").none(),
      nb::sig("def check_device(device: str | None) -> None"),
      "DeviceError when it is certain that there is no such device.");
  m.def("version", version);
  m.def("doctor_json", [] {
    nb::gil_scoped_release release;
    return doctor_json();
  });
}

}  // namespace headrace::python
