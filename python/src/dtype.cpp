#include "dtype.h"

#include <nanobind/stl/string.h>

#include <utility>
#include <vector>

#include "handles.h"
#include "numpy_api.h"

namespace headrace::python {

namespace {

nb::object call_dtype(nb::handle spec) {
  return steal_or_throw(PyObject_CallOneArg(numpy().dtype, spec.ptr()));
}

nb::object ml_dtype(const std::string& name) {
  nb::object module = nb::steal(PyImport_ImportModule("ml_dtypes"));
  if (!module.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_ModuleNotFoundError)) throw nb::python_error();
    PyErr_Clear();
    raise(PyExc_ImportError, "data type " + name + " needs the package ml_dtypes");
  }
  return call_dtype(module.attr(name.c_str()));
}

nb::object structured_dtype(const DType& dtype) {
  nb::list names, formats, offsets;
  for (const StructField& field : dtype.fields()) {
    nb::object format = numpy_dtype(field.dtype);
    if (field.big_endian) format = format.attr("newbyteorder")(">");
    if (!field.shape.empty()) format = nb::make_tuple(format, shape_tuple(field.shape));
    names.append(field.name);
    formats.append(format);
    offsets.append(field.offset_bytes);
  }
  nb::dict spec;
  spec["names"] = names;
  spec["formats"] = formats;
  spec["offsets"] = offsets;
  spec["itemsize"] = dtype.itemsize();
  return call_dtype(spec);
}

nb::object string_dtype() {
  nb::module_ module = nb::module_::import_("numpy");
  if (nb::hasattr(module, "dtypes") && nb::hasattr(module.attr("dtypes"), "StringDType")) {
    return module.attr("dtypes").attr("StringDType")();
  }
  return call_dtype(nb::str("O"));
}

DType structure_from_numpy(nb::handle dtype) {
  std::vector<StructField> fields;
  nb::object by_name = dtype.attr("fields");
  for (nb::handle name : dtype.attr("names")) {
    nb::object entry = by_name[name];
    nb::object field_dtype = entry[0];
    StructField field;
    field.name = nb::cast<std::string>(name);
    field.offset_bytes = nb::cast<std::size_t>(entry[1]);
    nb::object sub_array = field_dtype.attr("subdtype");
    if (!sub_array.is_none()) {
      field.shape = shape_from_python(sub_array[1], "dtype");
      field_dtype = sub_array[0];
    }
    field.dtype = dtype_from_python(field_dtype, &field.big_endian);
    fields.push_back(std::move(field));
  }
  return DType::structure(std::move(fields), nb::cast<std::size_t>(dtype.attr("itemsize")));
}

DType from_numpy_dtype(nb::handle dtype, bool* big_endian) {
  if (!dtype.attr("names").is_none()) return structure_from_numpy(dtype);
  if (nb::cast<int>(dtype.attr("isbuiltin")) == 2) {  // registered by another package: ml_dtypes
    return DType::from_name(nb::cast<std::string>(dtype.attr("name")));
  }
  const auto kind = nb::cast<std::string>(dtype.attr("kind"));
  if (kind == "T") return DType::string();
  if (kind == "O") return DType::object();
  const bool swapped = nb::cast<std::string>(dtype.attr("byteorder")) == ">";
  if (big_endian != nullptr) *big_endian = swapped;
  nb::object native = swapped ? dtype.attr("newbyteorder")("=") : nb::borrow(dtype);
  return DType::from_numpy_str(nb::cast<std::string>(native.attr("str")));
}

}  // namespace

nb::object numpy_dtype(const DType& dtype) {
  switch (dtype.kind()) {
    case DType::Kind::string:
      return string_dtype();
    case DType::Kind::bytes:
    case DType::Kind::object:
    case DType::Kind::array:
      return call_dtype(nb::str("O"));
    case DType::Kind::structure:
      return structured_dtype(dtype);
    case DType::Kind::ml_floating:
      return ml_dtype(dtype.name());
    case DType::Kind::signed_integer:
    case DType::Kind::unsigned_integer:
      if (dtype.numpy_str().find('V') != std::string::npos) return ml_dtype(dtype.name());
      break;
    default:
      break;
  }
  return call_dtype(nb::str(dtype.numpy_str().c_str()));
}

DType dtype_from_python(nb::handle object, bool* big_endian) {
  if (big_endian != nullptr) *big_endian = false;
  if (object.is_none()) raise(PyExc_TypeError, "dtype: expected a data type, got None");
  // np.dtype(str) would be "<U0", which holds nothing, and np.dtype(bytes) likewise.
  if (object.is(reinterpret_cast<PyObject*>(&PyUnicode_Type))) return DType::string();
  if (object.is(reinterpret_cast<PyObject*>(&PyBytes_Type))) return DType::bytes();
  if (nb::isinstance<PyArray>(object)) return nb::cast<PyArray&>(object).dtype;
  if (PyUnicode_Check(object.ptr())) {
    const auto name = nb::cast<std::string>(object);
    if (name == "string" || name == "str") return DType::string();
    if (name == "bytes") return DType::bytes();
    nb::object dtype = nb::steal(PyObject_CallOneArg(numpy().dtype, object.ptr()));
    if (!dtype.is_valid()) {
      // Not a NumPy name: "bfloat16" and the like.
      PyErr_Clear();
      return DType::from_name(name);
    }
    return from_numpy_dtype(dtype, big_endian);
  }
  return from_numpy_dtype(call_dtype(object), big_endian);
}

}  // namespace headrace::python
