// Array.to_arrow and Array.read_ragged, and those of a.oindex and its like.

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "array.h"
#include "docs.h"
#include "dtype.h"
#include "tensor.h"

namespace headrace::python {

namespace {

Array on_device(PyArray& self, nb::handle device) {
  return device.is_none() ? self.array : self.array.to(device_from_python(device));
}

RaggedTensor read_ragged(PyArray& self,
                         const Array& array,
                         const ParsedKey& key,
                         nb::handle implementations) {
  check_fields(key, self.dtype);
  check_caller(self.origin);
  const ReadOptions options = read_options(Device::cpu(), nb::none(), implementations);
  nb::gil_scoped_release release;
  return array.read_ragged(key.selection, options);
}

nb::tuple values_and_offsets(RaggedTensor&& read) {
  nb::object values_dtype = numpy_dtype(read.values.dtype());
  nb::object values = wrap(std::move(read.values), values_dtype);
  nb::object offsets = wrap(std::move(read.offsets), numpy_dtype(DType::int64));
  return nb::make_tuple(values, offsets);
}

nb::object ragged_key(PyArray& self,
                      const ParsedKey& key,
                      nb::handle device,
                      nb::handle implementations) {
  return values_and_offsets(read_ragged(self, on_device(self, device), key, implementations));
}

nb::object arrow_key(PyArray& self,
                     const ParsedKey& key,
                     nb::handle device,
                     nb::handle implementations) {
  const Array array = on_device(self, device);
  const bool ragged = self.dtype.variable_length();
  const DType& dtype = self.dtype;
  const nb::str place(array.device().to_string().c_str());
  // Before anything is read: is there pyarrow, and has it such a type?
  const nb::object make = package_attribute("headrace._arrow", ragged ? "ragged" : "fixed");
  const nb::object check = package_attribute("headrace._arrow", "check");
  if (!ragged) {
    check_fields(key, dtype);
    nb::object type = self.numpy_dtype();
    if (key.fields.is_valid()) type = type[key.fields];
    check(type, place);
    return make(
        read_new(self, array, key, read_options(array.device(), nb::none(), implementations)));
  }
  if (dtype.kind() == DType::Kind::array) check(numpy_dtype(dtype.item()), place);
  RaggedTensor read = read_ragged(self, array, key, implementations);
  const nb::object shape = shape_tuple(read.shape);
  return make(dtype.name(), *values_and_offsets(std::move(read)), shape);
}

using ReadKey = nb::object (*)(PyArray&, const ParsedKey&, nb::handle, nb::handle);

auto of_array(ReadKey read) {
  return
      [read](PyArray& self, nb::handle selection, nb::handle device, nb::handle implementations) {
        return read(self, parse_selection(self, selection), device, implementations);
      };
}

auto of_indexer(ReadKey read) {
  return
      [read](Indexer& self, nb::handle selection, nb::handle device, nb::handle implementations) {
        auto& array = nb::cast<PyArray&>(self.array);
        ParsedKey key = parse_key(array, selection, self.kind);
        key.unbox = false;
        return read(array, key, device, implementations);
      };
}

}  // namespace

void bind_array_ragged(nb::class_<PyArray>& cls) {
  cls.def("to_arrow",
          of_array(arrow_key),
          nb::arg("selection") = nb::none(),
          nb::kw_only(),
          nb::arg("device") = nb::none(),
          nb::arg("implementations") = nb::none(),
          nb::sig("def to_arrow(self, selection: typing.Any = None, *, device: str | None = None, "
                  "implementations: dict[str, str] | None = None) -> typing.Any"),
          docs::kToArrow)
      .def("read_ragged",
           of_array(ragged_key),
           nb::arg("selection") = nb::none(),
           nb::kw_only(),
           nb::arg("device") = nb::none(),
           nb::arg("implementations") = nb::none(),
           nb::sig("def read_ragged(self, selection: typing.Any = None, *, "
                   "device: str | None = None, implementations: dict[str, str] | None = None) -> "
                   "tuple[typing.Any, typing.Any]"),
           docs::kReadRagged);
}

void bind_indexer_ragged(nb::class_<Indexer>& cls) {
  cls.def("to_arrow",
          of_indexer(arrow_key),
          nb::arg("selection"),
          nb::kw_only(),
          nb::arg("device") = nb::none(),
          nb::arg("implementations") = nb::none(),
          nb::sig("def to_arrow(self, selection: typing.Any, *, device: str | None = None, "
                  "implementations: dict[str, str] | None = None) -> typing.Any"),
          "As `Array.to_arrow`, with this kind of selection.")
      .def("read_ragged",
           of_indexer(ragged_key),
           nb::arg("selection"),
           nb::kw_only(),
           nb::arg("device") = nb::none(),
           nb::arg("implementations") = nb::none(),
           nb::sig("def read_ragged(self, selection: typing.Any, *, device: str | None = None, "
                   "implementations: dict[str, str] | None = None) -> "
                   "tuple[typing.Any, typing.Any]"),
           "As `Array.read_ragged`, with this kind of selection.");
}

}  // namespace headrace::python
