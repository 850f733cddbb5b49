#include <headrace/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <utility>

#include "codec_specs.h"
#include "dtype.h"
#include "handles.h"
#include "tensor.h"
#include "vlen.h"

namespace headrace::python {

namespace {

std::string wrong_fill_value(nb::handle value, const DType& dtype) {
  return "fill_value: expected a value of " + dtype.to_string() + ", got " +
         nb::cast<std::string>(nb::repr(value));
}

// NumPy makes an integer of 1.5, and of Decimal("1.5").
bool loses_fraction(nb::handle value, const DType& dtype) {
  using Kind = DType::Kind;
  if (dtype.kind() != Kind::signed_integer && dtype.kind() != Kind::unsigned_integer &&
      dtype.kind() != Kind::boolean)
    return false;
  const nb::object number = nb::hasattr(value, "item") ? value.attr("item")() : nb::borrow(value);
  if (PyNumber_Check(number.ptr()) == 0 || PyComplex_Check(number.ptr())) return false;
  const nb::object whole = nb::steal(PyNumber_Long(number.ptr()));
  if (!whole.is_valid()) PyErr_Clear();  // NaN and the infinities
  return !whole.is_valid() || !whole.equal(number);
}

std::vector<std::byte> element_bytes(nb::handle value, const DType& dtype, nb::handle numpy_dtype) {
  if (dtype.variable_length()) return vlen_bytes(value, dtype);
  ArrayView element;
  try {
    element = input_view(value, dtype, numpy_dtype);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError) &&
        !error.matches(PyExc_OverflowError))
      throw;
    const std::string text = wrong_fill_value(value, dtype);
    const bool is_type = error.matches(PyExc_TypeError);
    nb::raise_from(error, is_type ? PyExc_TypeError : PyExc_ValueError, "%s", text.c_str());
  }
  if (!element.view.shape.empty()) {
    raise(PyExc_ValueError,
          "[create_array] fill_value: expected a scalar, got " +
              nb::cast<std::string>(nb::repr(value)));
  }
  if (loses_fraction(value, dtype)) raise(PyExc_ValueError, wrong_fill_value(value, dtype));
  std::vector<std::byte> bytes(dtype.itemsize());
  if (!bytes.empty()) std::memcpy(bytes.data(), element.view.data, bytes.size());
  return bytes;
}

PyArray create_array_node(PyStore& store,
                          const std::string& path,
                          nb::handle shape,
                          nb::handle dtype,
                          nb::handle chunks,
                          nb::handle shards,
                          std::vector<std::variant<std::int64_t, Shape>> edges,
                          nb::handle codecs,
                          nb::handle fill_value,
                          int zarr_format,
                          const std::string& order,
                          const std::string& dimension_separator,
                          bool v2_chunk_keys,
                          bool null_fill_value,
                          const std::string& attributes,
                          std::vector<std::optional<std::string>> dimension_names,
                          bool overwrite,
                          bool write_empty_chunks,
                          nb::handle device) {
  CreateOptions options;
  options.shape = shape_from_python(shape, "[create_array] shape");
  options.dtype = dtype_from_python(dtype);
  if (!chunks.is_none()) options.chunks = shape_from_python(chunks, "[create_array] chunks");
  if (!shards.is_none()) options.shards = shape_from_python(shards, "[create_array] shards");
  options.edges = std::move(edges);
  if (!codecs.is_none()) options.codecs = codec_specs_from_python(codecs);
  if (!fill_value.is_none()) {
    nb::object type = options.dtype.variable_length() ? nb::none() : numpy_dtype(options.dtype);
    options.fill_value = element_bytes(fill_value, options.dtype, type);
  }
  if (order != "C" && order != "F") {
    raise(PyExc_ValueError, "[create_array] order: expected \"C\" or \"F\", got \"" + order + "\"");
  }
  options.zarr_format = zarr_format;
  options.order = order[0];
  options.dimension_separator = dimension_separator;
  options.v2_chunk_keys = v2_chunk_keys;
  options.null_fill_value = null_fill_value;
  options.attributes = attributes;
  options.dimension_names = std::move(dimension_names);
  options.overwrite = overwrite;
  options.write_empty_chunks = write_empty_chunks;
  options.poll = check_signals;
  const Device target = device_from_python(device);
  Array array = [&] {
    nb::gil_scoped_release release;
    Array created = create_array(store.store, path, options);
    return target.is_cpu() ? created : created.to(target);
  }();
  return PyArray(std::move(array), store.origin);
}

PyGroup create_group_node(PyStore& store,
                          const std::string& path,
                          const std::string& attributes,
                          int zarr_format,
                          bool overwrite) {
  nb::gil_scoped_release release;
  return {create_group(store.store, path, attributes, zarr_format, overwrite, check_signals),
          store.origin};
}

}  // namespace

void bind_create(nb::module_& m) {
  m.def("create_array",
        create_array_node,
        nb::arg("store"),
        nb::arg("path"),
        nb::kw_only(),
        nb::arg("shape"),
        nb::arg("dtype").none(),
        nb::arg("chunks") = nb::none(),
        nb::arg("shards") = nb::none(),
        nb::arg("edges") = std::vector<std::variant<std::int64_t, Shape>>(),
        nb::arg("codecs") = nb::none(),
        nb::arg("fill_value") = nb::none(),
        nb::arg("zarr_format") = 3,
        nb::arg("order") = "C",
        nb::arg("dimension_separator") = "",
        nb::arg("v2_chunk_keys") = false,
        nb::arg("null_fill_value") = false,
        nb::arg("attributes") = "",
        nb::arg("dimension_names") = std::vector<std::optional<std::string>>(),
        nb::arg("overwrite") = false,
        nb::arg("write_empty_chunks") = false,
        nb::arg("device") = nb::none(),
        nb::sig("def create_array(store: Store, path: str, *, "
                "shape: int | collections.abc.Sequence[int], dtype: typing.Any, "
                "chunks: int | collections.abc.Sequence[int] | None = None, "
                "shards: int | collections.abc.Sequence[int] | None = None, "
                "edges: collections.abc.Sequence[int | collections.abc.Sequence[int]] = [], "
                "codecs: list[tuple[str, str]] | None = None, fill_value: typing.Any = None, "
                "zarr_format: int = 3, order: str = 'C', dimension_separator: str = '', "
                "v2_chunk_keys: bool = False, null_fill_value: bool = False, attributes: str = '', "
                "dimension_names: collections.abc.Sequence[str | None] = [], "
                "overwrite: bool = False, write_empty_chunks: bool = False, "
                "device: str | None = None) -> Array"));
  m.def("create_group",
        create_group_node,
        nb::arg("store"),
        nb::arg("path") = "",
        nb::arg("attributes") = "",
        nb::arg("zarr_format") = 3,
        nb::arg("overwrite") = false);
  m.def(
      "consolidate_metadata",
      [](PyStore& store, const std::string& path) {
        nb::gil_scoped_release release;
        consolidate_metadata(store.store, path, check_signals);
      },
      nb::arg("store"),
      nb::arg("path") = "");
  m.def(
      "describe_dtype",
      [](nb::handle dtype) {
        bool big_endian = false;
        const DType type = dtype_from_python(dtype, &big_endian);
        // Codecs behind elements of variable length are given bytes.
        const std::size_t itemsize = type.variable_length() ? 1 : type.itemsize();
        return nb::make_tuple(type.to_string(), itemsize, big_endian);
      },
      nb::arg("dtype"),
      nb::sig("def describe_dtype(dtype: typing.Any) -> tuple[str, int, bool]"),
      "(name, itemsize, stored big-endian) of what `dtype` means.");
}

}  // namespace headrace::python
