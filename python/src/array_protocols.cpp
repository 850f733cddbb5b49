// What makes an Array one of Python's, NumPy's and DLPack's: len, iter, repr, pickle, __array__,
// __dlpack__.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <utility>

#include "array.h"
#include "dlpack.h"
#include "docs.h"
#include "errors.h"
#include "tensor.h"

namespace headrace::python {

namespace {

Device requested_device(nb::handle dl_device, const Device& own) {
  if (dl_device.is_none()) return own;
  const auto [type, index] =
      argument<std::pair<int, int>>(dl_device, "dl_device", "a pair such as (1, 0)");
  if (type == kDLCPU && index == 0) return Device::cpu();
  if (type == kDLCUDA) return Device::cuda(index);
  raise(PyExc_BufferError,
        "__dlpack__: there is no device " + nb::cast<std::string>(nb::str(dl_device)));
}

nb::object dlpack(PyArray& self,
                  nb::handle stream,
                  nb::handle max_version,
                  nb::handle dl_device,
                  nb::handle copy) {
  check_dlpack_type(self.dtype);
  if (!copy.is_none() && !argument<bool>(copy, "copy", "True, False or None")) {
    raise(PyExc_BufferError, "__dlpack__: an array in a store cannot be exported without a copy");
  }
  const Array array = self.array.to(requested_device(dl_device, self.array.device()));
  const bool cuda = array.device().type == Device::Type::cuda;
  if (!cuda && !stream.is_none()) {
    raise(PyExc_BufferError, "__dlpack__: stream must be None for host memory");
  }
  DLManagedTensorVersioned* managed = nullptr;
  try {
    check_caller(self.origin);
    ReadOptions options;
    options.poll = check_signals;
    nb::gil_scoped_release release;
    managed = array.read({}, options).to_dlpack();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) raise(PyExc_BufferError, error.what());
    throw;
  }
  managed->flags |= DLPACK_FLAG_BITMASK_IS_COPIED;
  return dlpack_capsule(managed, max_version);
}

nb::object to_array(nb::handle self, nb::handle dtype, nb::handle copy) {
  if (!copy.is_none() && !argument<bool>(copy, "copy", "True, False or None")) {
    raise(PyExc_ValueError, "__array__: an array in a store cannot be read without a copy");
  }
  nb::object whole = self.attr("read")(nb::arg("device") = "cpu");
  if (dtype.is_none()) return whole;
  return whole.attr("astype")(dtype, nb::arg("copy") = false);
}

std::int64_t length(PyArray& self) {
  if (self.ndim == 0) raise(PyExc_TypeError, "len() of an array without dimensions");
  return self.array.shape()[0];
}

auto from_package(const char* module, const char* name) {
  return [module, name](nb::handle self) { return package_attribute(module, name)(self); };
}

}  // namespace

void bind_array_protocols(nb::class_<PyArray>& cls) {
  cls.def("__len__", length)
      .def("__iter__",
           from_package("headrace._array", "iterate"),
           nb::sig("def __iter__(self) -> collections.abc.Iterator[typing.Any]"))
      .def("__repr__",
           from_package("headrace._array", "describe"),
           nb::sig("def __repr__(self) -> str"))
      .def("__reduce__",
           from_package("headrace._array", "reduce_array"),
           nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def("__array__",
           to_array,
           nb::arg("dtype") = nb::none(),
           nb::arg("copy") = nb::none(),
           nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> "
                   "numpy.typing.NDArray[typing.Any]"))
      .def("__dlpack__",
           dlpack,
           nb::kw_only(),
           nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(),
           nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: typing.Any = None, "
                   "max_version: tuple[int, int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> "
                   "typing.Any"),
           docs::kDlpack)
      .def(
          "__dlpack_device__",
          [](PyArray& self) { return dlpack_device_of(self.array.device()); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def_prop_ro("attrs",
                   from_package("headrace.attributes", "Attributes"),
                   nb::sig("def attrs(self) -> headrace.attributes.Attributes"),
                   "The user attributes: a mutable mapping that writes through.")
      .def_prop_ro("lazy",
                   from_package("headrace.lazy", "LazyArray"),
                   nb::sig("def lazy(self) -> headrace.lazy.LazyArray"),
                   "A view that composes selections and reads when asked.")
      .def_prop_ro("metadata",
                   from_package("headrace._array", "metadata"),
                   nb::sig("def metadata(self) -> dict[str, typing.Any]"),
                   "The metadata document as stored.")
      .def_prop_ro("info",
                   from_package("headrace._info", "of_array"),
                   nb::sig("def info(self) -> headrace._info.Info"),
                   "What metadata say of it, as text and for notebooks.")
      .def("_repr_html_",
           from_package("headrace._html", "array_card"),
           nb::sig("def _repr_html_(self) -> str"))
      .def_prop_ro("codecs",
                   from_package("headrace.codecs", "of_array"),
                   nb::sig("def codecs(self) -> list[headrace.codecs.Codec]"),
                   "The chain of codecs; v2 filters and compressors by their v3 meaning.");
}

}  // namespace headrace::python
