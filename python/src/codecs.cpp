#include <headrace/codec.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "codec_specs.h"
#include "device_array.h"
#include "dlpack.h"
#include "dlpack_import.h"
#include "future.h"
#include "handles.h"
#include "numpy_api.h"
#include "tensor.h"

namespace headrace::python {

namespace {

// Contiguous memory of Python objects, on the host and on devices, released together. What it gives
// lives no longer.
class Buffers {
 public:
  // `device`: of memory that does not tell. `stream`: of the caller, may be none.
  Buffers(const Device& device, const Stream& stream) : device_(device), stream_(stream) {}
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    for (auto& buffer : host_) PyBuffer_Release(buffer.get());
  }

  TensorView add(nb::handle object, bool writable, const char* what) {
    Stream ready = stream_;
    if (auto view = exported_view(object, writable, what, device_, ready, waited_)) {
      order_behind(ready, what);
      exported_.push_back(std::move(view->keep_alive));
      if (found_.is_cpu()) found_ = view->view.device;
      return std::move(view->view);
    }
    if (holds_objects(object))
      raise(PyExc_TypeError, std::string(what) + ": expected buffers of bytes, got one of objects");
    const Py_buffer& buffer = add_host(object, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE);
    return {buffer.buf, {buffer.len}, {}, DType::uint8, Device::cpu()};
  }

  // Whether it is one array of two dimensions or more.
  static bool has_rows(nb::handle object) {
    if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()) || !nb::hasattr(object, "shape"))
      return false;
    nb::object shape = object.attr("shape");
    return PySequence_Check(shape.ptr()) != 0 && nb::len(shape) >= 2;
  }

  // Each object by itself.
  BatchViews add_all(const nb::list& objects, bool writable, const char* what) {
    std::vector<TensorView>& views = lists_.emplace_back();
    views.reserve(objects.size());
    for (nb::handle object : objects) views.push_back(add(object, writable, what));
    return views;
  }

  BatchViews add_rows(nb::handle object, bool writable, const char* what) {
    const TensorView all = add(object, writable, what);
    if (!all.is_c_contiguous())
      raise(PyExc_ValueError, std::string(what) + ": one array must be C-contiguous");
    const auto count = nb::cast<std::size_t>(nb::object(object.attr("shape")[0]));
    const std::size_t nbytes = count > 0 ? nbytes_of(all) / count : 0;
    if (nbytes * count != nbytes_of(all))
      raise(PyExc_ValueError, std::string(what) + ": its shape is not that of its bytes");
    std::vector<std::size_t> offsets(count + 1);
    for (std::size_t i = 0; i <= count; ++i) offsets[i] = i * nbytes;
    return {all, std::move(offsets)};
  }

  // The bytes of `object` from each offset to the next.
  BatchViews add_pieces(nb::handle object, std::vector<std::size_t> offsets, const char* what) {
    const TensorView all = add(object, false, what);
    if (!all.is_c_contiguous())
      raise(PyExc_ValueError, std::string(what) + ": one buffer must be C-contiguous");
    return {all, std::move(offsets)};
  }

  // Where the first one lies that is not on the host; else the host.
  const Device& device() const { return found_; }
  const Stream& stream() const { return stream_; }
  // What work needs that is done later: what exported memory of devices, and the caller's stream.
  nb::object kept(nb::handle stream) const {
    nb::list objects;
    for (const nb::object& object : exported_) objects.append(object);
    objects.append(stream);
    return objects;
  }

 private:
  // Arrays with __cuda_array_interface__ name the stream that they are ready on; all others are
  // ready on the caller's.
  void order_behind(const Stream& ready, const char* what) {
    if (ready.raw() == stream_.raw()) return;
    if (stream_.raw() != nullptr || !device().is_cpu()) {
      raise(PyExc_ValueError,
            std::string(what) + ": buffers are ready on different streams; give stream=");
    }
    stream_ = ready;
  }

  const Py_buffer& add_host(nb::handle object, int flags) {
    auto buffer = std::make_unique<Py_buffer>();
    if (PyObject_GetBuffer(object.ptr(), buffer.get(), flags) != 0) throw nb::python_error();
    host_.push_back(std::move(buffer));
    return *host_.back();
  }

  // Whose bytes are pointers of the interpreter.
  static bool holds_objects(nb::handle object) {
    if (PyMemoryView_Check(object.ptr())) {
      const char* const format = PyMemoryView_GET_BUFFER(object.ptr())->format;
      return format && std::strchr(format, 'O');
    }
    if (PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(numpy().ndarray)) == 0)
      return false;
    nb::object dtype = steal_or_throw(PyObject_GetAttr(object.ptr(), numpy().dtype_name));
    return nb::cast<bool>(nb::object(dtype.attr("hasobject")));
  }

  static std::size_t nbytes_of(const TensorView& view) {
    return view.size() * view.dtype.itemsize();
  }

  Device device_;
  Stream stream_;
  ProducerStreams waited_;
  std::vector<std::unique_ptr<Py_buffer>> host_;
  std::vector<nb::object> exported_;
  std::deque<std::vector<TensorView>> lists_;
  Device found_ = Device::cpu();
};

// Of each object of an iterable, or of each row of one array.
BatchViews views(nb::handle objects, bool writable, const char* what, Buffers& buffers) {
  // All are there before the first is taken: what a generator gives its stream for a later one
  // would not be waited for else.
  if (Buffers::has_rows(objects)) return buffers.add_rows(objects, writable, what);
  return buffers.add_all(nb::list(nb::borrow(objects)), writable, what);
}

// Without a name: where the buffers lie, else the configured device.
BatchOptions batch_options(nb::handle device,
                           const Buffers& buffers,
                           const std::string& implementation,
                           const std::string& configuration) {
  BatchOptions options;
  const Device found = buffers.device();
  options.device = device.is_none() && !found.is_cpu() ? found : device_from_python(device);
  options.stream = buffers.stream();
  options.implementation = implementation;
  options.configuration = configuration;
  if (options.stream.raw() != nullptr && options.device.is_cpu() && found.is_cpu())
    raise(PyExc_ValueError, "stream: expected None for buffers in host memory");
  return options;
}

Buffers new_buffers(nb::handle device, nb::handle stream) {
  return {device.is_none() ? Device::cuda() : device_from_python(device),
          stream_from_python(stream)};
}

// `offsets`: a contiguous array of int64, or None where each input is an object of its own.
BatchViews input_views(nb::handle inputs, nb::handle offsets, const char* what, Buffers& buffers) {
  if (offsets.is_none()) return views(inputs, false, what, buffers);
  Buffers of_offsets(Device::cpu(), {});
  const TensorView found = of_offsets.add(offsets, false, "offsets");
  const auto* const first = static_cast<const std::int64_t*>(found.data);
  const std::size_t count = found.size() / sizeof(*first);
  std::vector<std::size_t> values;
  values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (first[i] < 0)
      raise(PyExc_ValueError,
            "offsets: expected sizes in bytes, got " + std::to_string(first[i]) + " at " +
                std::to_string(i));
    values.push_back(static_cast<std::size_t>(first[i]));
  }
  return buffers.add_pieces(inputs, std::move(values), what);
}

nb::object uint8_dtype() {
  return steal_or_throw(PyObject_CallOneArg(numpy().dtype, nb::str("uint8").ptr()));
}

std::vector<std::size_t> sizes_from_python(nb::handle out_nbytes) {
  std::vector<std::size_t> sizes;
  for (nb::handle nbytes : out_nbytes) {
    const Shape shape = shape_from_python(nbytes, "[decode_batch] out_nbytes");
    if (shape.size() != 1 || shape[0] < 0) {
      raise(PyExc_ValueError,
            "[decode_batch] out_nbytes: expected sizes in bytes, got " +
                nb::cast<std::string>(nb::repr(nbytes)));
    }
    sizes.push_back(static_cast<std::size_t>(shape[0]));
  }
  return sizes;
}

nb::list device_arrays(std::vector<Tensor>&& tensors) {
  nb::object uint8 = uint8_dtype();
  nb::list arrays;
  for (Tensor& tensor : tensors) arrays.append(nb::cast(device_array(std::move(tensor), uint8)));
  return arrays;
}

nb::list new_ndarrays(std::span<const std::size_t> sizes) {
  nb::object uint8 = uint8_dtype();
  nb::list arrays;
  for (std::size_t n : sizes)
    arrays.append(empty_ndarray({static_cast<std::int64_t>(n)}, 1, uint8).keep_alive);
  return arrays;
}

void check_counts(std::size_t inputs, std::size_t outputs) {
  if (inputs == outputs) return;
  raise(PyExc_ValueError,
        "[decode_batch] expected " + std::to_string(inputs) + " outputs, got " +
            std::to_string(outputs));
}

// What is decoded into arrays of headrace that exist is theirs, too.
void set_ready(nb::handle outputs, const Ready& ready) {
  for (nb::handle output : outputs)
    if (nb::isinstance<PyDeviceArray>(output)) *nb::cast<PyDeviceArray&>(output).ready = ready;
}

// A list, and where a stream was given the Future of its work.
nb::object with_future(nb::object list, const Ready& ready) {
  return nb::make_tuple(std::move(list),
                        PyFuture(ready.future(), nullptr, [](Unit) { return nb::none(); }));
}

nb::object decode(const std::string& codec,
                  const std::string& configuration,
                  nb::handle inputs,
                  nb::handle offsets,
                  nb::handle out,
                  nb::handle out_nbytes,
                  nb::handle device,
                  nb::handle stream,
                  const std::string& implementation) {
  if (out.is_none() == out_nbytes.is_none()) {
    raise(PyExc_ValueError, "[decode_batch] give either out or out_nbytes");
  }
  const bool queued = !stream.is_none();
  Buffers buffers = new_buffers(device, stream);
  nb::list outputs;  // there before the first input is taken, as views() has it
  const bool in_rows = Buffers::has_rows(out);
  if (in_rows) {
    outputs.append(out);
  } else if (!out.is_none()) {
    outputs = nb::list(nb::borrow(out));
  }
  const BatchViews sources = input_views(inputs, offsets, "[decode_batch] inputs", buffers);
  if (out.is_none()) {
    BatchOptions options = batch_options(device, buffers, implementation, configuration);
    if (queued && !stream.is_none()) options.stream_owner = keep_alive(nb::borrow(stream));
    const std::vector<std::size_t> sizes = sizes_from_python(out_nbytes);
    check_counts(sources.size(), sizes.size());
    if (!options.device.is_cpu()) {
      std::vector<Tensor> results = [&] {
        auto kept = queued ? keep_alive(buffers.kept(stream)) : nullptr;
        nb::gil_scoped_release release;
        if (!queued) return decode_batch(codec, sources, sizes, options);
        return decode_batch_async(codec, sources, sizes, std::move(kept), options);
      }();
      const Ready ready = results.empty() ? Ready() : results[0].ready();
      nb::list arrays = device_arrays(std::move(results));
      return queued ? with_future(std::move(arrays), ready) : std::move(arrays);
    }
    outputs = new_ndarrays(sizes);
    const BatchViews targets = views(outputs, true, "[decode_batch] out", buffers);
    {
      nb::gil_scoped_release release;
      decode_batch(codec, sources, targets, options);
    }
    return queued ? with_future(std::move(outputs), {}) : std::move(outputs);
  }
  const BatchViews targets = in_rows ? buffers.add_rows(out, true, "[decode_batch] out")
                                     : views(outputs, true, "[decode_batch] out", buffers);
  check_counts(sources.size(), targets.size());
  const BatchOptions options = batch_options(device, buffers, implementation, configuration);
  if (!queued) {
    nb::gil_scoped_release release;
    decode_batch(codec, sources, targets, options);
    return outputs;
  }
  const Ready ready = [&] {
    auto kept = keep_alive(buffers.kept(stream));
    nb::gil_scoped_release release;
    return decode_batch_async(codec, sources, targets, std::move(kept), options);
  }();
  set_ready(outputs, ready);
  return with_future(std::move(outputs), ready);
}

nb::list encode(const std::string& codec,
                const std::string& configuration,
                nb::handle inputs,
                nb::handle offsets,
                nb::handle device,
                nb::handle stream,
                const std::string& implementation) {
  Buffers buffers = new_buffers(device, stream);
  const BatchViews sources = input_views(inputs, offsets, "[encode_batch] inputs", buffers);
  const BatchOptions options = batch_options(device, buffers, implementation, configuration);
  std::vector<Tensor> encoded = [&] {
    nb::gil_scoped_release release;
    return encode_batch(codec, sources, options);
  }();
  if (!options.device.is_cpu()) return device_arrays(std::move(encoded));
  nb::list result;
  for (const Tensor& bytes : encoded) result.append(nb::bytes(bytes.data(), bytes.nbytes()));
  return result;
}

nb::list table() {
  nb::list rows;
  for (const CodecInfo& info : codec_table()) {
    nb::dict row;
    row["codec"] = info.codec;
    row["implementation"] = info.implementation;
    row["device"] = info.device;
    row["available"] = info.available;
    row["why_not"] = info.why_not;
    row["used"] = info.used;
    row["encodes"] = info.encodes;
    row["used_to_encode"] = info.used_to_encode;
    rows.append(row);
  }
  return rows;
}

}  // namespace

std::vector<CodecSpec> codec_specs_from_python(nb::handle specs) {
  std::vector<CodecSpec> result;
  for (nb::handle spec : specs) {
    result.push_back(
        {nb::cast<std::string>(nb::object(spec[0])), nb::cast<std::string>(nb::object(spec[1]))});
  }
  return result;
}

void bind_codecs(nb::module_& m) {
  m.def("codec_table", table, nb::sig("def codec_table() -> list[dict[str, typing.Any]]"));
  m.def(
      "decode_batch",
      decode,
      nb::arg("codec"),
      nb::arg("configuration"),
      nb::arg("inputs"),
      nb::kw_only(),
      nb::arg("offsets") = nb::none(),
      nb::arg("out") = nb::none(),
      nb::arg("out_nbytes") = nb::none(),
      nb::arg("device") = nb::none(),
      nb::arg("stream") = nb::none(),
      nb::arg("implementation") = "",
      nb::sig("def decode_batch(codec: str, configuration: str, "
              "inputs: collections.abc.Iterable[typing.Any], *, offsets: typing.Any = None, "
              "out: collections.abc.Iterable[typing.Any] | None = None, "
              "out_nbytes: collections.abc.Iterable[int] | None = None, "
              "device: str | None = None, stream: typing.Any = None, implementation: str = '') -> "
              "typing.Any"));
  m.def(
      "encode_batch",
      encode,
      nb::arg("codec"),
      nb::arg("configuration"),
      nb::arg("inputs"),
      nb::kw_only(),
      nb::arg("offsets") = nb::none(),
      nb::arg("device") = nb::none(),
      nb::arg("stream") = nb::none(),
      nb::arg("implementation") = "",
      nb::sig("def encode_batch(codec: str, configuration: str, "
              "inputs: collections.abc.Iterable[typing.Any], *, offsets: typing.Any = None, "
              "device: str | None = None, stream: typing.Any = None, implementation: str = '') -> "
              "list[typing.Any]"));
}

}  // namespace headrace::python
