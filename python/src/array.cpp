#include "array.h"

#include <headrace/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "device_array.h"
#include "dlpack.h"
#include "dlpack_import.h"
#include "docs.h"
#include "dtype.h"
#include "errors.h"
#include "future.h"
#include "handles.h"
#include "tensor.h"
#include "vlen.h"

namespace headrace::python {

const nb::object& PyArray::numpy_dtype() {
  if (!numpy_dtype_.is_valid()) numpy_dtype_ = python::numpy_dtype(dtype);
  return numpy_dtype_;
}

nb::object wrap(Tensor&& tensor, nb::handle numpy_dtype) {
  if (tensor.dtype().variable_length()) return vlen_to_ndarray(tensor, numpy_dtype);
  if (tensor.device().is_cpu()) return to_ndarray(std::move(tensor), numpy_dtype);
  return nb::cast(device_array(std::move(tensor), numpy_dtype));
}

namespace {

ArrayView new_result(PyArray& self, const Shape& shape) {
  ArrayView result = empty_ndarray(shape, self.dtype.itemsize(), self.numpy_dtype());
  result.view.dtype = self.dtype;
  return result;
}

Tensor read_tensor(const Array& array, const ParsedKey& key, const ReadOptions& options) {
  nb::gil_scoped_release release;
  return array.read(key.selection, options);
}

nb::object read_new_on_device(PyArray& self,
                              const Array& array,
                              const ParsedKey& key,
                              const ReadOptions& options) {
  if (key.fields.is_valid()) {
    raise(PyExc_NotImplementedError,
          "[read] fields of a structured type are selected in host memory only");
  }
  return wrap(read_tensor(array, key, options), self.numpy_dtype());
}

}  // namespace

ReadOptions read_options(const Device& device, nb::handle stream, nb::handle implementations) {
  ReadOptions options;
  if (device.is_cpu() && !stream.is_none()) {
    raise(PyExc_ValueError,
          "[read] stream: expected None for a result in host memory, got " +
              nb::cast<std::string>(nb::repr(stream)));
  }
  options.stream = stream_from_python(stream);
  if (!implementations.is_none()) {
    options.implementations = implementations_from_python(implementations);
  }
  options.poll = check_signals;
  return options;
}

nb::object read_new(PyArray& self,
                    const Array& array,
                    const ParsedKey& key,
                    const ReadOptions& options) {
  check_fields(key, self.dtype);
  check_caller(self.origin);
  if (!array.device().is_cpu()) return read_new_on_device(self, array, key, options);
  if (self.dtype.variable_length()) {
    nb::object result = wrap(read_tensor(array, key, options), self.numpy_dtype());
    return key.unbox && nb::cast<int>(result.attr("ndim")) == 0 ? unboxed(result) : result;
  }
  ArrayView result;
  {
    std::optional<nb::gil_scoped_release> release;
    const auto place = [&](const Shape& shape) {
      result = new_result(self, shape);
      release.emplace();
      return result.view;
    };
    array.read_placed(key.selection, std::ref(place), options);
  }
  if (key.fields.is_valid()) result.keep_alive = result.keep_alive[key.fields];
  if (key.unbox && result.view.shape.empty()) return unboxed(result.keep_alive);
  return std::move(result.keep_alive);
}

ParsedKey parse_selection(PyArray& self, nb::handle selection) {
  ParsedKey key;
  if (!selection.is_none()) key = parse_key(self, selection, KeyKind::automatic);
  key.unbox = false;
  return key;
}

nb::object dimension_names(PyArray& self) {
  const auto names = self.array.dimension_names();
  if (names.empty()) return nb::none();
  nb::list result;
  for (const auto& name : names) {
    if (name) {
      result.append(*name);
    } else {
      result.append(nb::none());
    }
  }
  return steal_or_throw(PyList_AsTuple(result.ptr()));
}

namespace {

nb::object getitem(PyArray& self, nb::handle key, KeyKind kind) {
  const ParsedKey parsed = parse_key(self, key, kind);
  ReadOptions options;
  options.poll = check_signals;
  return read_new(self, self.array, parsed, options);
}

void refuse_fields(const ParsedKey& key) {
  if (key.fields.is_valid()) {
    raise(PyExc_ValueError, "[read] out: a selection of fields cannot be read into place");
  }
}

nb::object read_key(PyArray& self,
                    const ParsedKey& key,
                    nb::handle out,
                    nb::handle device,
                    nb::handle stream,
                    nb::handle implementations) {
  const Array array = device.is_none() ? self.array : self.array.to(device_from_python(device));
  ReadOptions options = read_options(array.device(), stream, implementations);
  if (out.is_none()) return read_new(self, array, key, options);
  refuse_fields(key);
  check_caller(self.origin);
  if (self.dtype.variable_length()) {
    return vlen_to_output(read_tensor(array, key, options), nb::borrow(out), self.numpy_dtype());
  }
  ProducerStreams waited;
  ArrayView target =
      output_view(out, self.dtype, self.numpy_dtype(), array.device(), options.stream, waited);
  {
    nb::gil_scoped_release release;
    array.read_into(key.selection, target.view, options);
  }
  return nb::borrow(out);
}

nb::object read(PyArray& self,
                nb::handle selection,
                nb::handle out,
                nb::handle device,
                nb::handle stream,
                nb::handle implementations) {
  return read_key(self, parse_selection(self, selection), out, device, stream, implementations);
}

nb::object read_indexed(Indexer& self,
                        nb::handle selection,
                        nb::handle out,
                        nb::handle device,
                        nb::handle stream,
                        nb::handle implementations) {
  auto& array = nb::cast<PyArray&>(self.array);
  ParsedKey key = parse_key(array, selection, self.kind);
  key.unbox = false;
  return read_key(array, key, out, device, stream, implementations);
}

PyFuture read_async(PyArray& self,
                    nb::handle selection,
                    nb::object out,
                    nb::handle device,
                    nb::handle stream,
                    nb::handle implementations) {
  const ParsedKey key = parse_selection(self, selection);
  refuse_fields(key);
  const Array array = device.is_none() ? self.array : self.array.to(device_from_python(device));
  ReadOptions options = read_options(array.device(), stream, implementations);
  options.poll = nullptr;  // the threads of the pool handle no signals
  const nb::object& dtype = self.numpy_dtype();
  if (out.is_none() || self.dtype.variable_length()) {
    auto future = [&] {
      nb::gil_scoped_release release;
      return array.read_async(key.selection, options);
    }();
    return PyFuture(std::move(future),
                    self.origin,
                    [kept = keep_alive(dtype), target = keep_alive(out)](Tensor tensor) {
                      const nb::handle type = static_cast<PyObject*>(kept.get());
                      nb::object into = nb::borrow(static_cast<PyObject*>(target.get()));
                      return into.is_none() ? wrap(std::move(tensor), type)
                                            : vlen_to_output(tensor, std::move(into), type);
                    });
  }
  ProducerStreams waited;
  ArrayView target = output_view(out, self.dtype, dtype, array.device(), options.stream, waited);
  auto kept = keep_alive(std::move(target.keep_alive));
  auto future = [&] {
    nb::gil_scoped_release release;
    return array.read_into_async(key.selection, target.view, kept, options);
  }();
  return PyFuture(std::move(future), self.origin, [result = keep_alive(out)](Unit) {
    return nb::borrow(static_cast<PyObject*>(result.get()));
  });
}

nb::list read_many_items(nb::handle requests, nb::handle implementations) {
  std::vector<ReadRequest> plan;
  std::vector<nb::object> kept;
  nb::list results;
  std::size_t to_place = 0;
  constexpr const char* kWanted = "requests (array, selection, out) of headrace arrays";
  const nb::object items = nb::steal(PySequence_Tuple(requests.ptr()));
  if (!items.is_valid()) {
    // What a generator raises is its caller's.
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
    raise_wrong_type("read_many", kWanted, requests);
  }
  ProducerStreams waited;
  std::optional<nb::gil_scoped_release> release;  // the last, so that the first to go
  for (nb::handle item : items) {
    nb::object fields = nb::steal(PySequence_Tuple(item.ptr()));
    if (!fields.is_valid()) {
      if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
      PyErr_Clear();
      raise_wrong_type("read_many", kWanted, item);
    }
    const std::size_t count = nb::len(fields);
    if (count < 1 || count > 3) {
      raise(PyExc_ValueError,
            "[read_many] a request is (array, selection, out), got " +
                nb::cast<std::string>(nb::repr(item)));
    }
    kept.emplace_back(fields[0]);
    auto& array = argument<PyArray&>(kept.back(), "read_many", kWanted);
    nb::object selection = count > 1 ? nb::object(fields[1]) : nb::none();
    nb::object out = count > 2 ? nb::object(fields[2]) : nb::none();
    const ParsedKey key = parse_selection(array, selection);
    refuse_fields(key);
    check_caller(array.origin);
    if (array.dtype.variable_length()) {
      results.append(read_key(array, key, out, nb::none(), nb::none(), implementations));
      continue;
    }
    const Device device = array.array.device();
    if (out.is_none() && !device.is_cpu()) {
      const Shape shape = array.array.result_shape(key.selection);
      out = nb::cast(device_array(Tensor::empty(shape, array.dtype, device), array.numpy_dtype()));
    }
    ReadRequest request{array.array, key.selection, {}};
    if (out.is_none()) {
      ++to_place;
      request.place = [&, self = &array, at = nb::len(results)](const Shape& shape) {
        ArrayView result = new_result(*self, shape);
        results[at] = std::move(result.keep_alive);
        if (--to_place == 0) release.emplace();  // no Python object is touched after this
        return std::move(result.view);
      };
    } else {
      Stream stream;
      ArrayView target = output_view(out, array.dtype, array.numpy_dtype(), device, stream, waited);
      request.out = target.view;
      kept.push_back(std::move(target.keep_alive));
    }
    plan.push_back(std::move(request));
    results.append(out);
  }
  const ReadOptions options = read_options(Device::cpu(), nb::none(), implementations);
  if (to_place == 0) release.emplace();
  headrace::read_many(plan, options);
  release.reset();
  return results;
}

nb::object fill_value(PyArray& self) {
  const auto bytes = self.array.fill_value();
  if (!bytes) return nb::none();
  if (self.dtype.variable_length()) {
    return vlen_to_python({bytes->data(), bytes->size()}, self.dtype);
  }
  ArrayView scalar = empty_ndarray({}, self.dtype.itemsize(), self.numpy_dtype());
  if (!bytes->empty()) std::memcpy(scalar.view.data, bytes->data(), bytes->size());
  return unboxed(scalar.keep_alive);
}

// Python's integers: the product of a shape need not fit 64 bits.
nb::int_ product(const Shape& factors) {
  nb::object result = nb::int_(1);
  for (std::int64_t factor : factors) result = result * nb::int_(factor);
  return nb::borrow<nb::int_>(result);
}

nb::int_ size(const PyArray& self) { return product(self.array.shape()); }

nb::int_ nchunks(const PyArray& self) {
  if (self.array.is_rectilinear()) return nb::int_(self.array.nchunks());
  Shape grid = self.array.shape();
  const Shape chunks = self.array.chunks();
  for (std::size_t d = 0; d < grid.size(); ++d) {
    const std::int64_t chunk = std::max<std::int64_t>(chunks[d], 1);
    grid[d] = grid[d] / chunk + (grid[d] % chunk != 0 ? 1 : 0);
  }
  return product(grid);
}

std::int64_t itemsize(PyArray& self) {
  if (!self.dtype.variable_length()) return static_cast<std::int64_t>(self.dtype.itemsize());
  return nb::cast<std::int64_t>(self.numpy_dtype().attr("itemsize"));
}

nb::object raw_codecs(PyArray& self) {
  nb::list result;
  for (const CodecSpec& spec : self.array.codecs()) {
    result.append(nb::make_tuple(spec.name, spec.configuration));
  }
  return result;
}

nb::dict implementations_dict(PyArray& self) {
  nb::dict result;
  for (const auto& [codec, name] : self.implementations) result[codec.c_str()] = name;
  return result;
}

// Of _core.open_array(), for another handle like this one.
nb::dict open_options_dict(PyArray& self) {
  const OpenOptions options = self.array.open_options();
  nb::dict result;
  result["device"] = options.device.to_string();
  result["zarr_format"] = *options.zarr_format;
  result["read_only"] = options.read_only;
  result["implementations"] = implementations_dict(self);
  result["metadata_json"] = options.metadata_json;
  result["attributes_json"] = options.attributes_json;
  result["as_opened"] = options.as_opened;
  result["write_empty_chunks"] = options.write_empty_chunks;
  result["shard_order"] = kShardOrders[static_cast<std::size_t>(options.shard_order)];
  return result;
}

PyArray to_device(PyArray& self, nb::handle device) {
  return PyArray(self.array.to(device_from_python(device)), self.origin, self.implementations);
}

PyArray with_implementations(PyArray& self, nb::handle implementations) {
  Implementations added = implementations_from_python(implementations);
  Implementations all = self.implementations;
  for (const auto& [codec, name] : added) all[codec] = name;
  return PyArray(self.array.with_implementations(added), self.origin, std::move(all));
}

nb::list verify(PyArray& self, nb::handle progress) {
  check_caller(self.origin);
  const nb::object show = package_attribute("headrace._progress", "shown")(progress, "verify");
  std::vector<std::pair<std::string, std::string>> bad;
  std::atomic<std::uint64_t> done{0};
  ReadOptions options;
  options.poll = check_signals;
  std::int64_t total = 0;
  const auto tell = [&](std::int64_t nbytes) {
    nb::gil_scoped_acquire gil;
    show(std::min(nbytes, total), total);
  };
  {
    nb::gil_scoped_release release;
    if (!show.is_none()) {
      total = self.array.nbytes_stored();
      options.encoded_nbytes = &done;
      options.poll = [&] {
        check_signals();
        tell(static_cast<std::int64_t>(done.load()));
      };
    }
    self.array.verify(
        [&](const std::string& key, const Error& error) { bad.emplace_back(key, error.what()); },
        options);
    if (!show.is_none()) tell(total);
  }
  nb::list result;
  for (const auto& [key, message] : bad) result.append(nb::make_tuple(key, message));
  return result;
}

const char* name_of(KeyKind kind) {
  return kind == KeyKind::orthogonal ? "oindex" : kind == KeyKind::coordinate ? "vindex" : "blocks";
}

}  // namespace

// By dimension it is the outer product of what is selected along each, as in xarray's isel.
ParsedKey parse_key(PyArray& self, nb::handle key, KeyKind kind) {
  if (!PyDict_Check(key.ptr())) return parse_key(key, kind, self.ndim);
  const char* const items_of = kind == KeyKind::coordinate ? "points" : "selection";
  const nb::object items =
      package_attribute("headrace._dimensions", items_of)(key, dimension_names(self), self.ndim);
  return parse_key(items, kind == KeyKind::automatic ? KeyKind::orthogonal : kind, self.ndim);
}

void bind_array(nb::module_& m) {
  auto indexers = nb::class_<Indexer>(m, "_Indexer");
  indexers
      .def(
          "__getitem__",
          [](Indexer& self, nb::handle key) {
            return getitem(nb::cast<PyArray&>(self.array), key, self.kind);
          },
          nb::arg("key").none(),
          nb::sig("def __getitem__(self, key: typing.Any) -> typing.Any"))
      .def(
          "__setitem__",
          [](Indexer& self, nb::handle key, nb::handle value) {
            setitem(nb::cast<PyArray&>(self.array), key, value, self.kind);
          },
          nb::arg("key").none(),
          nb::arg("value").none(),
          nb::sig("def __setitem__(self, key: typing.Any, value: typing.Any) -> None"))
      .def("__repr__",
           [](Indexer& self) {
             return "<" + std::string(name_of(self.kind)) + " of " +
                    nb::cast<std::string>(nb::repr(self.array)) + ">";
           })
      .def("read",
           read_indexed,
           nb::arg("selection"),
           nb::kw_only(),
           nb::arg("out") = nb::none(),
           nb::arg("device") = nb::none(),
           nb::arg("stream") = nb::none(),
           nb::arg("implementations") = nb::none(),
           nb::sig("def read(self, selection: typing.Any, *, out: typing.Any = None, "
                   "device: str | None = None, stream: typing.Any = None, "
                   "implementations: dict[str, str] | None = None) -> typing.Any"),
           "As `Array.read`, with this kind of selection.");
  bind_indexer_ragged(indexers);
  auto indexer = [](KeyKind kind) {
    return [kind](nb::object self) { return Indexer{std::move(self), kind}; };
  };

  auto cls = nb::class_<PyArray>(m, "Array", docs::kArray, nb::is_weak_referenceable());
  cls.def(
         "__getitem__",
         [](PyArray& self, nb::handle key) { return getitem(self, key, KeyKind::automatic); },
         nb::arg("key").none(),
         nb::sig("def __getitem__(self, key: typing.Any) -> typing.Any"))
      .def("read",
           read,
           nb::arg("selection") = nb::none(),
           nb::kw_only(),
           nb::arg("out") = nb::none(),
           nb::arg("device") = nb::none(),
           nb::arg("stream") = nb::none(),
           nb::arg("implementations") = nb::none(),
           nb::sig("def read(self, selection: typing.Any = None, *, out: typing.Any = None, "
                   "device: str | None = None, stream: typing.Any = None, "
                   "implementations: dict[str, str] | None = None) -> typing.Any"),
           docs::kRead)
      .def("read_async",
           read_async,
           nb::arg("selection") = nb::none(),
           nb::kw_only(),
           nb::arg("out") = nb::none(),
           nb::arg("device") = nb::none(),
           nb::arg("stream") = nb::none(),
           nb::arg("implementations") = nb::none(),
           nb::sig("def read_async(self, selection: typing.Any = None, *, out: typing.Any = None, "
                   "device: str | None = None, stream: typing.Any = None, "
                   "implementations: dict[str, str] | None = None) -> Future[typing.Any]"),
           docs::kReadAsync)
      .def("to",
           to_device,
           nb::arg("device").none(),
           nb::sig("def to(self, device: str) -> Array"),
           "The same array read to another device; metadata and caches are shared.")
      .def("with_implementations",
           with_implementations,
           nb::arg("implementations").none(),
           nb::sig("def with_implementations(self, implementations: dict[str, str]) -> Array"),
           "A handle that decodes with these implementations: ``{\"zstd\": \"libzstd\"}``.")
      .def("verify",
           verify,
           nb::kw_only(),
           nb::arg("progress") = nb::none(),
           nb::sig("def verify(self, *, progress: collections.abc.Callable[[int, int], object] | "
                   "bool | None = None) -> list[tuple[str, str]]"),
           "Decode every stored chunk and check every checksum; (chunk key, what is wrong) of each "
           "bad one.\n\n``progress`` is called with the stored bytes done and in all; True shows a "
           "bar.");
  cls.def_prop_ro("oindex",
                  indexer(KeyKind::orthogonal),
                  "Orthogonal indexing: one index set a dimension, their outer product.")
      .def_prop_ro("vindex",
                   indexer(KeyKind::coordinate),
                   "Coordinate indexing: index arrays broadcast against each other, or one mask.")
      .def_prop_ro(
          "blocks", indexer(KeyKind::block), "Block indexing: integers and slices count chunks.");
  cls.def_prop_ro(
         "shape",
         [](PyArray& self) { return shape_tuple(self.array.shape()); },
         nb::sig("def shape(self) -> tuple[int, ...]"),
         "Extent of each dimension.")
      .def_prop_ro(
          "dtype",
          [](PyArray& self) { return self.numpy_dtype(); },
          nb::sig("def dtype(self) -> numpy.dtype[typing.Any]"),
          "Type of an element in memory: native byte order, whatever is stored.")
      .def_prop_ro(
          "ndim", [](PyArray& self) { return self.ndim; }, "Number of dimensions.")
      .def_prop_ro("size", size, "Number of elements.")
      .def_prop_ro(
          "nbytes",
          [](PyArray& self) { return nb::borrow<nb::int_>(size(self) * nb::int_(itemsize(self))); },
          "Bytes of the whole array in memory.")
      .def_prop_ro("itemsize", itemsize, "Bytes of an element of the dtype.")
      .def_prop_ro(
          "chunks",
          [](PyArray& self) { return shape_tuple(self.array.chunks()); },
          nb::sig("def chunks(self) -> tuple[int, ...]"),
          "Shape of the unit that is read: the inner chunk when sharded.\n\n"
          "Raises NotImplementedError where a rectilinear grid gives it no one shape: see\n"
          "`read_chunk_sizes`.")
      .def_prop_ro(
          "shards",
          [](PyArray& self) -> nb::object {
            const auto shards = self.array.shards();
            return shards ? shape_tuple(*shards) : nb::none();
          },
          nb::sig("def shards(self) -> tuple[int, ...] | None"),
          "Shape of the unit that is stored when sharded, else None.\n\n"
          "Raises NotImplementedError for shards of a rectilinear grid: see `write_chunk_sizes`.")
      .def_prop_ro(
          "is_rectilinear",
          [](PyArray& self) { return self.array.is_rectilinear(); },
          "Whether chunks, or shards, have more than one shape.")
      .def_prop_ro(
          "is_sharded",
          [](PyArray& self) { return self.array.is_sharded(); },
          "Whether stored units hold many chunks.")
      .def_prop_ro(
          "read_chunk_sizes",
          [](PyArray& self) { return shape_tuples(self.array.read_chunk_sizes()); },
          nb::sig("def read_chunk_sizes(self) -> tuple[tuple[int, ...], ...]"),
          "Extents of the chunks along each dimension, as Dask has them: of the inner chunks when\n"
          "sharded, the last one cut off at the end of the array.")
      .def_prop_ro(
          "write_chunk_sizes",
          [](PyArray& self) { return shape_tuples(self.array.write_chunk_sizes()); },
          nb::sig("def write_chunk_sizes(self) -> tuple[tuple[int, ...], ...]"),
          "As `read_chunk_sizes`, of the units that are stored: the shards when sharded.")
      .def_prop_ro("fill_value",
                   fill_value,
                   nb::sig("def fill_value(self) -> typing.Any"),
                   "What missing chunks read as; None when v2 metadata says null.")
      .def_prop_ro("dimension_names",
                   dimension_names,
                   nb::sig("def dimension_names(self) -> tuple[str | None, ...] | None"),
                   "Name of each dimension, or None.")
      .def_prop_ro(
          "zarr_format", [](PyArray& self) { return self.array.zarr_format(); }, "2 or 3.")
      .def_prop_ro(
          "device",
          [](PyArray& self) { return self.array.device().to_string(); },
          "Where results are: ``\"cpu\"``, ``\"cuda:0\"``.")
      .def_prop_ro(
          "read_only",
          [](PyArray& self) { return self.array.read_only(); },
          "Whether writes raise `PermissionError`.")
      .def_prop_ro(
          "path",
          [](PyArray& self) { return name_to_python(self.array.path()); },
          nb::sig("def path(self) -> str"),
          "Path within the store; empty for the root.")
      .def_prop_ro(
          "store",
          [](PyArray& self) {
            return PyStore{self.array.store(), self.origin};
          },
          "The store that keeps it.")
      .def(
          "close",
          [](PyArray& self) {
            nb::gil_scoped_release release;
            Store(self.array.store()).close();
          },
          "Close the store: a zip archive that is written appears only then, whole. Usable in a "
          "``with`` statement, which discards the archive when the block raises.")
      .def(
          "__enter__",
          [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Array"))
      .def(
          "__exit__",
          [](PyArray& self, nb::args raised) { leave_store(self.array.store(), raised); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def_prop_ro("nchunks", nchunks, "Number of chunks in the grid.")
      .def_prop_ro(
          "nchunks_initialized",
          [](PyArray& self) {
            check_caller(self.origin);
            nb::gil_scoped_release release;
            return self.array.nchunks_initialized();
          },
          "Number of chunks that are stored; lists the store.")
      .def(
          "nbytes_stored",
          [](PyArray& self) {
            check_caller(self.origin);
            nb::gil_scoped_release release;
            return self.array.nbytes_stored();
          },
          "Bytes of the chunks as they are stored; lists the store.")
      .def(
          "_check_codecs",
          [](PyArray& self) { self.array.check_codecs(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("_metadata_json", [](PyArray& self) { return self.array.metadata_json(); })
      .def_prop_ro("_open_options",
                   open_options_dict,
                   nb::sig("def _open_options(self) -> dict[str, typing.Any]"))
      .def_prop_ro(
          "_codec_specs", raw_codecs, nb::sig("def _codec_specs(self) -> list[tuple[str, str]]"))
      .def_prop_ro("_implementations",
                   implementations_dict,
                   nb::sig("def _implementations(self) -> dict[str, str]"));
  bind_array_protocols(cls);
  bind_array_ragged(cls);
  bind_array_write(cls);
  m.def("read_many",
        read_many_items,
        nb::arg("requests").none(),
        nb::kw_only(),
        nb::arg("implementations") = nb::none(),
        nb::sig("def read_many(requests: collections.abc.Iterable[tuple[typing.Any, ...]], *, "
                "implementations: dict[str, str] | None = None) -> list[typing.Any]"),
        docs::kReadMany);
}

}  // namespace headrace::python
