#include <headrace/store.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "handles.h"

namespace headrace::python {

namespace {

std::string option_text(nb::handle value) {
  if (PyBool_Check(value.ptr())) return value.is(Py_True) ? "true" : "false";
  if (PyUnicode_Check(value.ptr())) return nb::cast<std::string>(value);
  if (PyLong_Check(value.ptr()) || PyFloat_Check(value.ptr())) {
    return nb::cast<std::string>(nb::str(value));
  }
  return nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(value));
}

StorageOptions storage_options_from_python(nb::handle value) {
  StorageOptions options;
  if (value.is_none()) return options;
  if (!PyDict_Check(value.ptr())) {
    raise(PyExc_TypeError,
          "storage_options: expected a dict, got " + nb::cast<std::string>(nb::repr(value)));
  }
  for (auto [name, item] : nb::borrow<nb::dict>(value)) {
    options[nb::cast<std::string>(name)] = option_text(item);
  }
  return options;
}

StoreMode store_mode_from_python(const std::string& mode) {
  if (mode == "r") return StoreMode::read;
  if (mode == "r+") return StoreMode::read_write;
  if (mode == "a") return StoreMode::append;
  if (mode == "w") return StoreMode::overwrite;
  if (mode == "w-") return StoreMode::create;
  raise(PyExc_ValueError,
        "mode: expected \"r\", \"r+\", \"a\", \"w\" or \"w-\", got \"" + mode + "\"");
}

PyStore open(const std::string& url, const std::string& mode, nb::handle storage_options) {
  const StoreMode how = store_mode_from_python(mode);
  StorageOptions options = storage_options_from_python(storage_options);
  Store store = [&] {
    nb::gil_scoped_release release;
    return open_store(url, how, options);
  }();
  auto origin = std::make_shared<Origin>(
      Origin{store.url(), std::move(options), how == StoreMode::read || store.read_only()});
  return {std::move(store), std::move(origin)};
}

nb::object options_dict(const PyStore& self) {
  nb::dict result;
  for (const auto& [name, value] : self.origin->options) result[name.c_str()] = value;
  return result;
}

constexpr const char* kStoreDoc = R"(A place that keeps bytes by key: a folder, a zip file, memory.

Made by `headrace.open_store`; copies of a handle share one store. Usable in a ``with`` statement,
which closes it: a zip archive that is written is complete only then.

Examples
--------
>>> with headrace.open_store("out.zip", mode="w") as store:
...     headrace.create_array(store, "t", shape=(3,), dtype="int32")[:] = [1, 2, 3]
)";

}  // namespace

void bind_store(nb::module_& m) {
  nb::class_<PyStore>(m, "Store", kStoreDoc)
      .def_prop_ro(
          "url",
          [](PyStore& self) { return self.store.url(); },
          "``file:///data/era5.zarr``, ``zip:///data/a.zip``, ``memory://name``.")
      .def_prop_ro(
          "read_only",
          [](PyStore& self) { return self.store.read_only(); },
          "Whether writes raise `PermissionError`.")
      .def_prop_ro(
          "storage_options", options_dict, nb::sig("def storage_options(self) -> dict[str, str]"))
      .def(
          "close",
          [](PyStore& self) {
            nb::gil_scoped_release release;
            self.store.close();
          },
          "Finish what is buffered; writes after it fail. May be called again.")
      .def(
          "__enter__",
          [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Store"))
      .def(
          "__exit__",
          [](PyStore& self, nb::args) {
            nb::gil_scoped_release release;
            self.store.close();
          },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def("__repr__",
           [](PyStore& self) {
             return "<headrace.Store " + self.store.url() +
                    (self.store.read_only() ? ", read-only>" : ">");
           })
      .def(
          "__reduce__",
          [](nb::handle self) {
            return package_attribute("headrace._array", "reduce_store")(self);
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def_prop_ro("_can_reopen", [](PyStore& self) { return !self.origin->url.empty(); })
      .def_prop_ro("_opened_read_only", [](PyStore& self) { return self.origin->read_only; });
  m.def("open_store",
        open,
        nb::arg("url"),
        nb::arg("mode"),
        nb::arg("storage_options") = nb::none(),
        nb::sig("def open_store(url: str, mode: str, "
                "storage_options: dict[str, typing.Any] | None = None) -> Store"));
  m.def(
      "memory_store",
      [] {
        return PyStore{memory_store(), std::make_shared<Origin>()};
      },
      "A new, empty store in memory that nobody else sees.");
}

}  // namespace headrace::python
