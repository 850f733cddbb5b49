#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "docs.h"
#include "errors.h"
#include "future.h"
#include "tensor.h"

namespace headrace::python {

namespace {

WriteOptions write_options(nb::handle implementations) {
  WriteOptions options;
  if (!implementations.is_none()) {
    options.implementations = implementations_from_python(implementations);
  }
  options.poll = check_signals;
  return options;
}

// a["f"] = x: the other fields of the selected elements stay as they are.
void write_fields(PyArray& self, const ParsedKey& key, nb::handle value) {
  ArrayView elements;
  {
    std::optional<nb::gil_scoped_release> release;
    self.array.to(Device::cpu()).read_placed(key.selection, [&](const Shape& shape) {
      elements = empty_ndarray(shape, self.dtype.itemsize(), self.numpy_dtype());
      elements.view.dtype = self.dtype;
      release.emplace();
      return elements.view;
    });
  }
  elements.keep_alive[key.fields] = value;
  const WriteOptions options = write_options(nb::none());
  nb::gil_scoped_release release;
  self.array.write(key.selection, elements.view, options);
}

// The elements a caller gives, in the array's type. Where NumPy cannot make them, the message tells
// of which array.
ArrayView data_view(const char* action, PyArray& self, nb::handle value) {
  try {
    return input_view(value, self.dtype, self.numpy_dtype());
  } catch (nb::python_error& error) {
    PyObject* const type = error.type().ptr();
    if (type != PyExc_ValueError && type != PyExc_TypeError) throw;
    const std::string path = self.array.path();
    const std::string text = "[" + std::string(action) + "] " +
                             (path.empty() ? self.array.store().url() : path) +
                             ": expected elements of " + self.dtype.to_string() + ": " +
                             nb::cast<std::string>(nb::str(error.value()));
    nb::raise_from(error, type, "%s", text.c_str());
  }
}

void write_key(PyArray& self, const ParsedKey& key, nb::handle value, const WriteOptions& options) {
  if (self.array.read_only()) {
    raise(PyExc_PermissionError,
          "[write] /" + self.array.path() + ": the array was opened read-only, use mode=\"r+\"");
  }
  check_caller(self.origin);
  if (key.fields.is_valid()) {
    check_fields(key, self.dtype);
    write_fields(self, key, value);
    return;
  }
  const ArrayView data = data_view("write", self, value);
  nb::gil_scoped_release release;
  self.array.write(key.selection, data.view, options);
}

ParsedKey parse_write_selection(PyArray& self, nb::handle selection) {
  if (selection.is_none()) return {};
  return parse_key(self, selection, KeyKind::automatic);
}

void write(PyArray& self, nb::handle selection, nb::handle value, nb::handle implementations) {
  write_key(self, parse_write_selection(self, selection), value, write_options(implementations));
}

PyFuture write_async(PyArray& self,
                     nb::handle selection,
                     nb::handle value,
                     nb::handle implementations) {
  const ParsedKey key = parse_write_selection(self, selection);
  if (key.fields.is_valid()) {
    raise(PyExc_NotImplementedError, "[write] fields are not written asynchronously");
  }
  WriteOptions options = write_options(implementations);
  options.poll = nullptr;  // the threads of the pool handle no signals
  ArrayView data = data_view("write", self, value);
  auto kept = keep_alive(std::move(data.keep_alive));
  auto future = [&] {
    nb::gil_scoped_release release;
    return self.array.write_async(key.selection, data.view, kept, options);
  }();
  return PyFuture(std::move(future), self.origin, [](Unit) { return nb::none(); });
}

// By dimension, the others stay as the store has them.
Shape extents_by_dimension(PyArray& self, nb::handle by_dimension) {
  nb::object axes = package_attribute("headrace._dimensions", "axes_of")(
      "[resize] shape", by_dimension, dimension_names(self), self.ndim);
  Shape extents(static_cast<std::size_t>(self.ndim), kKeepExtent);
  for (const auto& [axis, extent] : nb::cast<nb::dict>(axes)) {
    extents[nb::cast<std::size_t>(axis)] = extent_from_python(extent, "[resize] shape");
  }
  return extents;
}

void resize(PyArray& self, nb::handle shape) {
  check_caller(self.origin);
  const Shape extents = PyDict_Check(shape.ptr()) ? extents_by_dimension(self, shape)
                                                  : shape_from_python(shape, "[resize] shape");
  const WriteOptions options = write_options(nb::none());
  nb::gil_scoped_release release;
  self.array.resize(extents, options);
}

nb::object append(PyArray& self, nb::handle value, nb::handle dimension) {
  check_caller(self.origin);
  nb::object number = nb::borrow(dimension);
  if (PyUnicode_Check(dimension.ptr())) {
    number = package_attribute("headrace._dimensions", "axis")(
        dimension, dimension_names(self), self.ndim);
  }
  const auto axis = argument<int>(number, "axis", "the name or number of a dimension");
  const ArrayView data = data_view("append", self, value);
  const WriteOptions options = write_options(nb::none());
  Shape shape;
  {
    nb::gil_scoped_release release;
    shape = self.array.append(data.view, axis, options);
  }
  return shape_tuple(shape);
}

}  // namespace

void setitem(PyArray& self, nb::handle key, nb::handle value, KeyKind kind) {
  write_key(self, parse_key(self, key, kind), value, write_options(nb::none()));
}

void bind_array_write(nb::class_<PyArray>& cls) {
  cls.def(
         "__setitem__",
         [](PyArray& self, nb::handle key, nb::handle value) {
           setitem(self, key, value, KeyKind::automatic);
         },
         nb::arg("key").none(),
         nb::arg("value").none(),
         nb::sig("def __setitem__(self, key: typing.Any, value: typing.Any) -> None"))
      .def("write",
           write,
           nb::arg("selection").none(),
           nb::arg("value").none(),
           nb::kw_only(),
           nb::arg("implementations") = nb::none(),
           nb::sig("def write(self, selection: typing.Any, value: typing.Any, *, "
                   "implementations: dict[str, str] | None = None) -> None"),
           docs::kWrite)
      .def("write_async",
           write_async,
           nb::arg("selection").none(),
           nb::arg("value").none(),
           nb::kw_only(),
           nb::arg("implementations") = nb::none(),
           nb::sig("def write_async(self, selection: typing.Any, value: typing.Any, *, "
                   "implementations: dict[str, str] | None = None) -> Future[None]"),
           "As `write`, but returns a `Future`; ``value`` must not change until it is done. An "
           "exception "
           "that ends a wait for it, Ctrl-C's too, leaves the write under way: `Future.cancel` "
           "ends it.")
      .def("resize",
           resize,
           nb::arg("shape").none(),
           nb::sig("def resize(self, shape: int | collections.abc.Sequence[int] | "
                   "collections.abc.Mapping[str | int, int]) -> None"),
           docs::kResize)
      .def("append",
           append,
           nb::arg("data").none(),
           nb::arg("axis").none() = 0,
           nb::sig("def append(self, data: typing.Any, axis: int | str = 0) -> tuple[int, ...]"),
           docs::kAppend)
      .def("_set_attributes_json",
           [](PyArray& self, const std::string& json) {
             const WriteOptions options = write_options(nb::none());
             nb::gil_scoped_release release;
             self.array.set_attributes_json(json, options);
           })
      .def(
          "_update_attributes",
          [](PyArray& self, std::string set, std::vector<std::string> remove, bool keep_present) {
            const AttributeChanges changes{std::move(set), std::move(remove), keep_present};
            const WriteOptions options = write_options(nb::none());
            nb::gil_scoped_release release;
            return self.array.update_attributes(changes, options);
          },
          nb::arg("set"),
          nb::arg("remove"),
          nb::arg("keep_present"),
          nb::sig("def _update_attributes(self, set: str, remove: list[str], keep_present: bool) "
                  "-> str"))
      .def("_attributes_json", [](PyArray& self) { return self.array.attributes_json(); });
}

}  // namespace headrace::python
