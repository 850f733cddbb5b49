#include <headrace/cached_store.h>
#include <headrace/store.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "buffer_bytes.h"
#include "future.h"
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
  StorageOptions store_options = options;
  store_options.erase("pickle_credentials");  // headrace._secrets asks for it
  Store store = [&] {
    nb::gil_scoped_release release;
    return open_store(url, how, store_options);
  }();
  // Its URL has the place that the option had, unless that has secrets, which no URL shows.
  constexpr std::string_view kReference = "reference://";
  const std::string place = store.url();
  if (const auto fo = options.find("fo"); fo != options.end() && place.starts_with(kReference)) {
    const std::string_view file = std::string_view(place).substr(kReference.size());
    if (file.starts_with('/') || file == fo->second) options.erase(fo);
  }
  auto origin = std::make_shared<Origin>(
      Origin{store.url(), std::move(options), how == StoreMode::read || store.read_only()});
  return {std::move(store), std::move(origin)};
}

nb::object options_dict(const PyStore& self) {
  nb::dict result;
  for (const auto& [name, value] : self.origin->options) result[name.c_str()] = value;
  return result;
}

// A stored object, or some bytes of it: from `offset` on, or the last ones when it is negative.
nb::object get_bytes(PyStore& self,
                     const std::string& key,
                     std::int64_t offset,
                     std::optional<std::int64_t> nbytes) {
  // Outlives the release: where a read throws, it is freed with the GIL held.
  nb::object bytes;
  std::optional<nb::gil_scoped_release> release(std::in_place);
  const std::optional<StoredObject> object = self.store.open(key);
  if (!object) {
    release.reset();
    return nb::none();
  }
  const auto size = static_cast<std::int64_t>(object->size());
  const std::int64_t first = std::clamp<std::int64_t>(offset < 0 ? size + offset : offset, 0, size);
  const std::int64_t count = std::clamp<std::int64_t>(nbytes.value_or(size), 0, size - first);
  release.reset();
  bytes = steal_or_throw(PyBytes_FromStringAndSize(nullptr, count));
  auto* data = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes.ptr()));
  release.emplace();
  object->read(static_cast<std::uint64_t>(first), {data, static_cast<std::size_t>(count)});
  release.reset();
  return bytes;
}

nb::object object_nbytes(PyStore& self, const std::string& key) {
  const auto size = [&]() -> std::optional<std::uint64_t> {
    nb::gil_scoped_release release;
    const std::optional<StoredObject> object = self.store.open(key);
    if (!object) return std::nullopt;
    return object->size();
  }();
  return size ? nb::object(nb::int_(*size)) : nb::none();
}

void set_bytes(PyStore& self, const std::string& key, nb::handle value) {
  const BufferBytes buffer(value);
  nb::gil_scoped_release release;
  self.store.set(key, buffer.bytes());
}

void set_new_bytes(PyStore& self, const std::string& key, nb::handle value) {
  const BufferBytes buffer(value);
  nb::gil_scoped_release release;
  self.store.set_new(key, buffer.bytes());
}

nb::list text_list(const std::vector<std::string>& texts) {
  nb::list result;
  for (const std::string& text : texts) result.append(text);
  return result;
}

using Listing = std::vector<std::string> (Store::*)(std::string_view) const;

template <Listing list>
nb::list names(PyStore& self, const std::string& prefix) {
  return text_list([&] {
    nb::gil_scoped_release release;
    return (self.store.*list)(prefix);
  }());
}

// Bytes by key, for adapters.
void bind_keys(nb::class_<PyStore>& cls) {
  const auto without_gil = nb::call_guard<nb::gil_scoped_release>();
  cls.def("_get",
          get_bytes,
          nb::arg("key"),
          nb::arg("offset") = 0,
          nb::arg("nbytes") = nb::none(),
          nb::sig("def _get(self, key: str, offset: int = 0, nbytes: int | None = None) -> "
                  "bytes | None"))
      .def("_nbytes",
           object_nbytes,
           nb::arg("key"),
           nb::sig("def _nbytes(self, key: str) -> int | None"))
      .def(
          "_exists",
          [](PyStore& self, const std::string& key) { return self.store.exists(key); },
          nb::arg("key"),
          without_gil)
      .def("_set",
           set_bytes,
           nb::arg("key"),
           nb::arg("value"),
           nb::sig("def _set(self, key: str, value: typing_extensions.Buffer) -> None"))
      .def("_set_new",
           set_new_bytes,
           nb::arg("key"),
           nb::arg("value"),
           nb::sig("def _set_new(self, key: str, value: typing_extensions.Buffer) -> None"))
      .def(
          "_erase",
          [](PyStore& self, const std::string& key) { self.store.erase(key); },
          nb::arg("key"),
          without_gil)
      .def(
          "_erase_prefix",
          [](PyStore& self, const std::string& prefix) { self.store.erase_prefix(prefix); },
          nb::arg("prefix"),
          without_gil)
      .def(
          "_remove_nodes",
          [](PyStore& self, const std::string& path) {
            remove_nodes(self.store, path, check_signals);
          },
          nb::arg("path") = "",
          without_gil)
      .def(
          "_identity",
          [](PyStore& self, const std::string& path) { return self.store.identity(path); },
          nb::arg("path") = "",
          without_gil)
      .def("_list",
           names<&Store::list>,
           nb::arg("prefix") = "",
           nb::sig("def _list(self, prefix: str = '') -> list[str]"))
      .def("_list_dir",
           names<&Store::list_dir>,
           nb::arg("prefix") = "",
           nb::sig("def _list_dir(self, prefix: str = '') -> list[str]"));
}

PyStore cached(const PyStore& store,
               std::size_t memory_nbytes,
               const std::string& directory,
               std::uint64_t disk_nbytes,
               std::size_t block_nbytes,
               const std::string& name) {
  nb::gil_scoped_release release;
  return {cached_store(store.store, {memory_nbytes, directory, disk_nbytes, block_nbytes, name}),
          store.origin};
}

// The arguments after the store, of which `cached` made this; None for other stores.
nb::object cache_arguments(const PyStore& self) {
  const auto options = cache_options(self.store);
  if (!options) return nb::none();
  return nb::make_tuple(options->memory_nbytes,
                        options->directory,
                        options->disk_nbytes,
                        options->block_nbytes,
                        options->name);
}

nb::dict cache_stats_dict(const PyStore& self) {
  const CacheStats stats = cache_stats(self.store);
  nb::dict result;
  result["memory_hits"] = stats.memory_hits;
  result["disk_hits"] = stats.disk_hits;
  result["misses"] = stats.misses;
  result["fetched_bytes"] = stats.fetched_nbytes;
  result["memory_bytes"] = stats.memory_nbytes;
  result["damaged_files"] = stats.damaged_files;
  result["failures"] = stats.failures;
  result["last_failure"] = stats.last_failure;
  return result;
}

// The store calls it from the thread that drops an archive, maybe while an error is set.
void warn_of_dropped_archive(const std::string& url) {
  if (interpreter_is_gone()) return;
  nb::gil_scoped_acquire gil;
  nb::error_scope keep;
  const std::string warning = url +
                              " was never closed, so what was written is lost: leave its `with` "
                              "block, or call close()";
  if (PyErr_WarnEx(PyExc_ResourceWarning, warning.c_str(), 1) != 0) PyErr_WriteUnraisable(nullptr);
}

constexpr const char* kStoreDoc = R"(A place that keeps bytes by key: a folder, a zip file, memory.

Made by `headrace.open_store`; copies of a handle share one store. Usable in a ``with`` statement,
which closes it. A zip archive that is written appears only then, whole; when the block raises, and
when the archive is dropped without `close`, it is discarded, and what was there stays.

Examples
--------
>>> with headrace.open_store("out.zip", mode="w") as store:
...     headrace.create_array(store, "t", shape=(3,), dtype="int32")[:] = [1, 2, 3]
)";

}  // namespace

void leave_store(Store store, const nb::args& raised) {
  const bool failed = raised.size() > 0 && !raised[0].is_none();
  nb::gil_scoped_release release;
  if (failed) {
    store.discard();
  } else {
    store.close();
  }
}

void bind_store(nb::module_& m) {
  on_dropped_archive(warn_of_dropped_archive);
  // Handles that live as long as the interpreter are dropped when it can warn no more.
  m.def("_warn_of_open_archives", [] {
    for (const std::string& url : unpublished_archives()) warn_of_dropped_archive(url);
  });
  auto cls = nb::class_<PyStore>(m, "Store", kStoreDoc, nb::is_weak_referenceable());
  cls.def_prop_ro(
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
          "Publish a zip archive that is written: it appears, whole, in place of what was there. "
          "Writes after it fail. May be called again; of other stores it does nothing.")
      .def(
          "discard",
          [](PyStore& self) {
            nb::gil_scoped_release release;
            self.store.discard();
          },
          "Drop the zip archive that `close` would publish; what was there stays. Of a folder that "
          "opening has made, with those above it, remove what is empty.")
      .def(
          "sync",
          [](PyStore& self) {
            nb::gil_scoped_release release;
            self.store.sync();
          },
          "Return when what this process wrote to a folder is on its disk, whatever `fsync` says.")
      .def(
          "__enter__",
          [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Store"))
      .def(
          "__exit__",
          [](PyStore& self, nb::args raised) { leave_store(self.store, raised); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def("__repr__",
           [](PyStore& self) {
             return "<headrace.Store " + printable(self.store.url()) +
                    (self.store.read_only() ? ", read-only>" : ">");
           })
      .def(
          "_repr_html_",
          [](nb::handle self) { return package_attribute("headrace._html", "store_card")(self); },
          nb::sig("def _repr_html_(self) -> str"))
      .def(
          "__reduce__",
          [](nb::handle self) {
            return package_attribute("headrace._array", "reduce_store")(self);
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def_prop_ro("_cache_arguments",
                   cache_arguments,
                   nb::sig("def _cache_arguments(self) -> tuple[typing.Any, ...] | None"))
      .def_prop_ro("_can_reopen", [](PyStore& self) { return !self.origin->url.empty(); })
      .def_prop_ro(
          "_python_store",
          [](PyStore& self) {
            auto* object = static_cast<PyObject*>(self.origin->python_store.get());
            return object ? nb::borrow(object) : nb::none();
          },
          nb::sig("def _python_store(self) -> typing.Any"))
      .def_prop_ro("_opened_read_only", [](PyStore& self) { return self.origin->read_only; });
  bind_keys(cls);
  m.def("open_store",
        open,
        nb::arg("url"),
        nb::arg("mode"),
        nb::arg("storage_options") = nb::none(),
        nb::sig("def open_store(url: str, mode: str, "
                "storage_options: dict[str, typing.Any] | None = None) -> Store"));
  m.def(
      "names_archive", [](const std::string& url) { return names_archive(url); }, nb::arg("url"));
  m.def(
      "doctor_of_place",
      [](const std::string& url, nb::handle storage_options) {
        StorageOptions options = storage_options_from_python(storage_options);
        options.erase("pickle_credentials");  // headrace._secrets asks for it
        nb::gil_scoped_release release;
        return doctor_json(url, options);
      },
      nb::arg("url"),
      nb::arg("storage_options") = nb::none(),
      nb::sig("def doctor_of_place(url: str, "
              "storage_options: dict[str, typing.Any] | None = None) -> str"));
  m.def("cached_store",
        cached,
        nb::arg("store"),
        nb::arg("memory_nbytes"),
        nb::arg("directory"),
        nb::arg("disk_nbytes"),
        nb::arg("block_nbytes"),
        nb::arg("name"));
  m.def("cache_stats",
        cache_stats_dict,
        nb::arg("store"),
        nb::sig("def cache_stats(store: Store) -> dict[str, typing.Any]"));
  m.def(
      "memory_store",
      [] {
        return PyStore{memory_store(), std::make_shared<Origin>()};
      },
      "A new, empty store in memory that nobody else sees.");
}

}  // namespace headrace::python
