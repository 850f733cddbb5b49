#include <headrace/codec.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <span>
#include <utility>

#include "codec_specs.h"
#include "handles.h"
#include "numpy_api.h"
#include "tensor.h"

namespace headrace::python {

namespace {

// Contiguous buffers of Python objects, released together.
class Buffers {
 public:
  Buffers() = default;
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    for (auto& buffer : buffers_) PyBuffer_Release(buffer.get());
  }

  std::span<std::byte> add(nb::handle object, bool writable) {
    auto buffer = std::make_unique<Py_buffer>();
    if (PyObject_GetBuffer(object.ptr(), buffer.get(), writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) !=
        0) {
      throw nb::python_error();
    }
    buffers_.push_back(std::move(buffer));
    const Py_buffer& added = *buffers_.back();
    return {static_cast<std::byte*>(added.buf), static_cast<std::size_t>(added.len)};
  }

 private:
  std::vector<std::unique_ptr<Py_buffer>> buffers_;
};

BatchOptions batch_options(nb::handle device,
                           const std::string& implementation,
                           const std::string& configuration) {
  BatchOptions options;
  options.device = device_from_python(device);
  options.implementation = implementation;
  options.configuration = configuration;
  return options;
}

nb::list new_outputs(nb::handle out_nbytes) {
  nb::object uint8 = steal_or_throw(PyObject_CallOneArg(numpy().dtype, nb::str("uint8").ptr()));
  nb::list outputs;
  for (nb::handle nbytes : out_nbytes) {
    const Shape shape = shape_from_python(nbytes, "[decode_batch] out_nbytes");
    if (shape.size() != 1 || shape[0] < 0) {
      raise(PyExc_ValueError,
            "[decode_batch] out_nbytes: expected sizes in bytes, got " +
                nb::cast<std::string>(nb::repr(nbytes)));
    }
    outputs.append(empty_ndarray(shape, 1, uint8).keep_alive);
  }
  return outputs;
}

nb::list decode(const std::string& codec,
                const std::string& configuration,
                nb::handle inputs,
                nb::handle out,
                nb::handle out_nbytes,
                nb::handle device,
                const std::string& implementation) {
  if (out.is_none() == out_nbytes.is_none()) {
    raise(PyExc_ValueError, "[decode_batch] give either out or out_nbytes");
  }
  const BatchOptions options = batch_options(device, implementation, configuration);
  nb::list outputs = out.is_none() ? new_outputs(out_nbytes) : nb::list(nb::borrow(out));
  Buffers buffers;
  std::vector<std::span<const std::byte>> sources;
  std::vector<std::span<std::byte>> targets;
  for (nb::handle input : inputs) sources.push_back(buffers.add(input, false));
  for (nb::handle output : outputs) targets.push_back(buffers.add(output, true));
  if (sources.size() != targets.size()) {
    raise(PyExc_ValueError,
          "[decode_batch] expected " + std::to_string(sources.size()) + " outputs, got " +
              std::to_string(targets.size()));
  }
  {
    nb::gil_scoped_release release;
    decode_batch(codec, sources, targets, options);
  }
  return outputs;
}

nb::list encode(const std::string& codec,
                const std::string& configuration,
                nb::handle inputs,
                nb::handle device,
                const std::string& implementation) {
  const BatchOptions options = batch_options(device, implementation, configuration);
  Buffers buffers;
  std::vector<std::span<const std::byte>> sources;
  for (nb::handle input : inputs) sources.push_back(buffers.add(input, false));
  const auto encoded = [&] {
    nb::gil_scoped_release release;
    return encode_batch(codec, sources, options);
  }();
  nb::list result;
  for (const auto& bytes : encoded) result.append(nb::bytes(bytes.data(), bytes.size()));
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
  m.def("decode_batch",
        decode,
        nb::arg("codec"),
        nb::arg("configuration"),
        nb::arg("inputs"),
        nb::kw_only(),
        nb::arg("out") = nb::none(),
        nb::arg("out_nbytes") = nb::none(),
        nb::arg("device") = nb::none(),
        nb::arg("implementation") = "",
        nb::sig("def decode_batch(codec: str, configuration: str, "
                "inputs: collections.abc.Iterable[typing.Any], *, "
                "out: collections.abc.Iterable[typing.Any] | None = None, "
                "out_nbytes: collections.abc.Iterable[int] | None = None, "
                "device: str | None = None, implementation: str = '') -> list[typing.Any]"));
  m.def("encode_batch",
        encode,
        nb::arg("codec"),
        nb::arg("configuration"),
        nb::arg("inputs"),
        nb::kw_only(),
        nb::arg("device") = nb::none(),
        nb::arg("implementation") = "",
        nb::sig("def encode_batch(codec: str, configuration: str, "
                "inputs: collections.abc.Iterable[typing.Any], *, "
                "device: str | None = None, implementation: str = '') -> list[bytes]"));
}

}  // namespace headrace::python
