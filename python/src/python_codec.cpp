// Codecs that Python knows and headrace lacks: headrace._python_codecs finds them, and says what
// the objects must have.

#include <headrace/custom_codec.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "buffer_bytes.h"
#include "dtype.h"
#include "errors.h"
#include "future.h"
#include "numpy_api.h"
#include "tensor.h"

namespace headrace::python {

namespace {

constexpr const char* kModule = "headrace._python_codecs";

// What Python raised, in words, as an error that is told with the names of array and chunk. What
// only stops the program, as KeyboardInterrupt, goes on as it is.
[[noreturn]] void throw_error(nb::python_error& raised, ErrorCode otherwise) {
  if (!raised.matches(PyExc_Exception)) throw ApplicationError(raised);
  ErrorCode code = otherwise;
  if (raised.matches(PyExc_MemoryError)) code = ErrorCode::out_of_memory;
  if (raised.matches(PyExc_NotImplementedError) || raised.matches(PyExc_ImportError))
    code = ErrorCode::unsupported;
  throw Error(code,
              nb::cast<std::string>(raised.type().attr("__name__")) + ": " +
                  nb::cast<std::string>(nb::str(raised.value())));
}

template <typename Function>
auto python_call(ErrorCode otherwise, Function&& function) {
  const PythonCall call;
  nb::gil_scoped_acquire gil;
  try {
    return function();
  } catch (nb::python_error& raised) {
    throw_error(raised, otherwise);
  }
}

// An ndarray of uint8 with a copy of its own: whoever gets it may keep it, and write to it.
nb::object own_copy(std::span<const std::byte> bytes) {
  const Shape shape{static_cast<std::int64_t>(bytes.size())};
  nb::object uint8 = steal_or_throw(PyObject_CallOneArg(numpy().dtype, nb::str("uint8").ptr()));
  ArrayView copy = empty_ndarray(shape, 1, uint8);
  nb::gil_scoped_release release;
  if (!bytes.empty()) std::memcpy(copy.view.data, bytes.data(), bytes.size());
  return std::move(copy.keep_alive);
}

CustomCodec::Kind kind_of(nb::handle codec) {
  const auto name = nb::cast<std::string>(codec.attr("kind"));
  if (name == "array_to_array") return CustomCodec::Kind::array_to_array;
  if (name == "array_to_bytes") return CustomCodec::Kind::array_to_bytes;
  return CustomCodec::Kind::bytes_to_bytes;
}

std::vector<std::byte> bytes_from_python(nb::handle object) {
  const BufferBytes buffer(object);
  return {buffer.bytes().begin(), buffer.bytes().end()};
}

class PythonCodec : public CustomCodec {
 public:
  explicit PythonCodec(const nb::object& object)
      : kind_(kind_of(object)),
        implementation_(nb::cast<std::string>(object.attr("implementation"))),
        has_fixed_size_(nb::cast<bool>(object.attr("has_fixed_size"))),
        object_(keep_alive(object)) {
    if (kind_ != Kind::array_to_array) return;
    nb::object encoded = object.attr("encoded");
    encoded_.dtype = dtype_from_python(encoded[0]);
    encoded_.shape = nb::cast<Shape>(nb::object(encoded[1]));
    encoded_.fill_value = bytes_from_python(encoded[2]);
  }

  Kind kind() const override { return kind_; }
  std::string implementation() const override { return implementation_; }
  CodecArray encoded() const override { return encoded_; }

  std::optional<std::size_t> encoded_nbytes(std::size_t decoded_nbytes) const override {
    if (!has_fixed_size_) return std::nullopt;
    return python_call(ErrorCode::invalid_argument, [&] {
      return nb::cast<std::size_t>(self().attr("encoded_nbytes")(decoded_nbytes));
    });
  }

  CodecOutput decode(std::span<const std::byte> encoded) const override {
    return run("decode", encoded, ErrorCode::corrupt);
  }
  CodecOutput encode(std::span<const std::byte> decoded) const override {
    return run("encode", decoded, ErrorCode::invalid_argument);
  }

 private:
  nb::handle self() const { return static_cast<PyObject*>(object_.get()); }

  CodecOutput run(const char* method, std::span<const std::byte> bytes, ErrorCode otherwise) const {
    return python_call(otherwise, [&]() -> CodecOutput {
      auto result = shared_bytes(self().attr(method)(own_copy(bytes)));
      return {result->bytes(), result};
    });
  }

  Kind kind_;
  std::string implementation_;
  bool has_fixed_size_;
  CodecArray encoded_;
  std::shared_ptr<void> object_;
};

nb::object to_python(const CodecArray& array, bool swapped) {
  nb::object dtype = numpy_dtype(array.dtype);
  if (swapped) dtype = dtype.attr("newbyteorder")();
  return nb::make_tuple(
      dtype, shape_tuple(array.shape), nb::bytes(array.fill_value.data(), array.fill_value.size()));
}

class PythonProvider : public CodecProvider {
 public:
  std::shared_ptr<const CustomCodec> make(const CodecSpec& spec, const CodecInput& input) override {
    try {
      return python_call(ErrorCode::invalid_argument, [&]() -> std::shared_ptr<const CustomCodec> {
        nb::object codec =
            package_attribute(kModule, "make")(spec.name,
                                               spec.configuration,
                                               input.is_array,
                                               to_python(input.elements, input.swapped),
                                               to_python(input.chunk, false));
        if (codec.is_none()) return nullptr;
        return std::make_shared<PythonCodec>(codec);
      });
    } catch (const Error& error) {
      throw error.with_context("codec " + spec.name);
    }
  }

  std::vector<Entry> codecs() override {
    nb::gil_scoped_acquire gil;
    std::vector<Entry> entries;
    for (nb::handle row : package_attribute(kModule, "known")()) {
      entries.push_back(
          {nb::cast<std::string>(nb::object(row[0])), nb::cast<std::string>(nb::object(row[1]))});
    }
    return entries;
  }
};

}  // namespace

void add_python_codecs() { add_codec_provider(std::make_shared<PythonProvider>()); }

}  // namespace headrace::python
