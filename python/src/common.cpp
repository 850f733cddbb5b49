#include "common.h"

#include <headrace/device.h>
#include <nanobind/stl/string.h>

#include "errors.h"
#include "handles.h"
#include "numpy_api.h"

namespace headrace::python {

nb::str name_to_python(const std::string& name) {
  return nb::steal<nb::str>(
      steal_or_throw(PyUnicode_DecodeUTF8(
                         name.data(), static_cast<Py_ssize_t>(name.size()), "surrogateescape"))
          .release());
}

std::string name_from_python(nb::handle name) {
  if (!PyUnicode_Check(name.ptr()))
    raise(PyExc_TypeError, "name: expected a string, got " + nb::cast<std::string>(nb::repr(name)));
  const nb::object bytes =
      steal_or_throw(PyUnicode_AsEncodedString(name.ptr(), "utf-8", "surrogateescape"));
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

nb::object shape_tuple(const Shape& shape) {
  nb::object tuple = steal_or_throw(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyObject* item = PyLong_FromLongLong(shape[i]);
    if (item == nullptr) throw nb::python_error();
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), item);
  }
  return tuple;
}

nb::object shape_tuples(const std::vector<Shape>& shapes) {
  nb::list list;
  for (const Shape& shape : shapes) list.append(shape_tuple(shape));
  return nb::tuple(list);
}

std::int64_t extent_from_python(nb::handle value, const char* what) {
  constexpr const char* kWanted = "an integer or a sequence of integers";
  if (PyBool_Check(value.ptr())) raise_wrong_type(what, kWanted, value);
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
    raise_wrong_type(what, kWanted, value);
  }
  int overflows = 0;
  const long long extent = PyLong_AsLongLongAndOverflow(index.ptr(), &overflows);
  if (overflows != 0)
    raise(PyExc_ValueError,
          std::string(what) + ": " + nb::cast<std::string>(nb::str(index)) +
              " is outside of 64 bits");
  return extent;
}

Shape shape_from_python(nb::handle value, const char* what) {
  // Arrays have an index too, of one element.
  if (PyIndex_Check(value.ptr()) && !PySequence_Check(value.ptr()))
    return {extent_from_python(value, what)};
  nb::object items = nb::steal(PySequence_Fast(value.ptr(), ""));
  if (!items.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
    return {extent_from_python(value, what)};  // raises
  }
  Shape shape;
  for (nb::handle item : items) shape.push_back(extent_from_python(item, what));
  return shape;
}

Implementations implementations_from_python(nb::handle value) {
  constexpr const char* kWanted = "a dict such as {\"zstd\": \"libzstd\"}";
  Implementations result;
  if (value.is_none()) return result;
  if (!PyDict_Check(value.ptr())) {
    raise_wrong_type("implementations", kWanted, value);
  }
  for (auto [key, item] : nb::borrow<nb::dict>(value)) {
    if (!PyUnicode_Check(key.ptr()) || !PyUnicode_Check(item.ptr()))
      raise_wrong_type("implementations", kWanted, value);
    result[nb::cast<std::string>(key)] = nb::cast<std::string>(item);
  }
  return result;
}

static Device present(Device device) {
  check_present(device);
  return device;
}

Device device_from_python(nb::handle name) {
  if (name.is_none()) return present(Device::parse(config().device));
  constexpr const char* kWanted = "a name such as \"cpu\" or \"cuda:0\"";
  return present(Device::parse(argument<std::string>(name, "device", kWanted)));
}

void check_caller(const std::shared_ptr<const Origin>& origin) {
  if (origin == nullptr || origin->python_store == nullptr) return;
  nb::handle(static_cast<PyObject*>(origin->python_store.get())).attr("check_caller")();
}

nb::object package_attribute(const char* module, const char* name) {
  return nb::module_::import_(module).attr(name);
}

const NumPy& numpy() {
  static const NumPy api = [] {
    nb::module_ module = nb::module_::import_("numpy");
    auto keep = [](nb::object object) { return object.release().ptr(); };
    return NumPy{
        keep(module.attr("empty")),
        keep(module.attr("asarray")),
        keep(module.attr("ndarray")),
        keep(module.attr("dtype")),
        keep(steal_or_throw(PyTuple_New(0))),
        keep(steal_or_throw(PyUnicode_InternFromString("__array_struct__"))),
        keep(steal_or_throw(PyUnicode_InternFromString("dtype"))),
    };
  }();
  return api;
}

nb::object array_interface(nb::handle object, const ArrayInterface** interface) {
  nb::object capsule = nb::steal(PyObject_GetAttr(object.ptr(), numpy().array_struct_name));
  if (!capsule.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw nb::python_error();
    PyErr_Clear();
    return {};
  }
  auto* found = static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (found == nullptr) throw nb::python_error();
  if (found->two != 2) raise(PyExc_TypeError, "__array_struct__: not an array interface");
  *interface = found;
  return capsule;
}

}  // namespace headrace::python
