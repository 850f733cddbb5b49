#include "selection.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <utility>
#include <vector>

#include "errors.h"
#include "numpy_api.h"

namespace headrace::python {

namespace {

std::int64_t integer(nb::handle value) {
  const long long result = PyLong_AsLongLong(value.ptr());
  if (result == -1 && PyErr_Occurred() != nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) throw nb::python_error();
    PyErr_Clear();
    raise(PyExc_IndexError,
          "index " + nb::cast<std::string>(nb::str(value)) + " is outside any array");
  }
  return result;
}

// A bound of a slice: clipped to int64, as Python clips bounds to the length.
std::optional<std::int64_t> bound(PyObject* value) {
  if (value == Py_None) return {};
  if (!PyIndex_Check(value)) raise_wrong_type("slice", "integers or None", value);
  nb::object index = steal_or_throw(PyNumber_Index(value));
  int overflow = 0;
  const long long result = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow > 0) return INT64_MAX;
  if (overflow < 0) return INT64_MIN + 1;
  if (result == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return result;
}

Slice slice_item(PyObject* object) {
  auto* slice = reinterpret_cast<PySliceObject*>(object);
  Slice result;
  result.start = bound(slice->start);
  result.stop = bound(slice->stop);
  result.step = bound(slice->step).value_or(1);
  if (result.step == 0) raise(PyExc_ValueError, "slice step cannot be zero");  // as NumPy
  return result;
}

template <typename T>
T contiguous_copy(const ArrayInterface& array) {
  std::size_t count = 1;
  T result;
  for (int i = 0; i < array.nd; ++i) {
    result.shape.push_back(array.shape[i]);
    count *= static_cast<std::size_t>(array.shape[i]);
  }
  if constexpr (std::is_same_v<T, Mask>) {
    result.values.resize(count);
    if (count != 0) std::memcpy(result.values.data(), array.data, count);
  } else {
    result.indices.resize(count);
    if (count != 0) std::memcpy(result.indices.data(), array.data, count * sizeof(std::int64_t));
  }
  return result;
}

[[noreturn]] void bad_item(nb::handle item) {
  raise(PyExc_IndexError,
        "an index must be an integer, slice, ellipsis (...), None, or an array of integers or "
        "booleans, got " +
            nb::cast<std::string>(nb::repr(item)));
}

// Lists, tuples inside a key, ndarrays and whatever else NumPy makes an array of.
SelectionItem array_item(nb::handle item) {
  nb::object array = nb::steal(PyObject_CallOneArg(numpy().asarray, item.ptr()));
  if (!array.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_TypeError)) {
      throw nb::python_error();
    }
    PyErr_Clear();
    bad_item(item);
  }
  const ArrayInterface* found = nullptr;
  nb::object capsule = array_interface(array, &found);
  const bool is_empty_list = PyList_Check(item.ptr()) && PyList_GET_SIZE(item.ptr()) == 0;
  const char kind = found->typekind;
  if (!is_empty_list && kind != 'b' && kind != 'i' && kind != 'u') bad_item(item);
  if (found->nd == 0) {
    if (kind == 'b') bad_item(item);
    return integer(steal_or_throw(PyNumber_Index(array.ptr())));
  }
  nb::object numpy_module = nb::module_::import_("numpy");
  nb::object contiguous = numpy_module.attr("ascontiguousarray")(
      array, kind == 'b' ? nb::str("bool") : nb::str("int64"));
  capsule = array_interface(contiguous, &found);
  if (kind == 'b') return contiguous_copy<Mask>(*found);
  return contiguous_copy<IndexArray>(*found);
}

SelectionItem parse_item(PyObject* item) {
  if (PyLong_CheckExact(item)) return integer(item);
  if (PySlice_Check(item)) return slice_item(item);
  if (item == Py_Ellipsis) return Ellipsis{};
  if (item == Py_None) return NewAxis{};
  if (PyBool_Check(item)) bad_item(item);
  if (PyList_CheckExact(item)) return array_item(item);
  const bool is_ndarray =
      PyObject_TypeCheck(item, reinterpret_cast<PyTypeObject*>(numpy().ndarray)) != 0;
  if (!is_ndarray && PyIndex_Check(item)) {
    nb::object index = nb::steal(PyNumber_Index(item));
    if (index.is_valid()) return integer(index);
    // Tensors have __index__ for their scalars only.
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
  }
  return array_item(item);
}

bool is_array(const SelectionItem& item) {
  return std::holds_alternative<IndexArray>(item) || std::holds_alternative<Mask>(item);
}

// zarr-python 3: points when the key is one mask of the whole array, or has an integer or an index
// array for every dimension; else the outer product. Two index arrays beside slices would mean
// something else in NumPy, so that is refused.
SelectionMode automatic_mode(const std::vector<SelectionItem>& items, std::size_t ndim) {
  std::size_t arrays = 0, masks = 0, integers = 0;
  for (const SelectionItem& item : items) {
    arrays += is_array(item) ? 1 : 0;
    masks += std::holds_alternative<Mask>(item) ? 1 : 0;
    integers += std::holds_alternative<std::int64_t>(item) ? 1 : 0;
  }
  if (arrays == 0) return SelectionMode::basic;
  if (items.size() == 1 && masks == 1 && std::get<Mask>(items[0]).shape.size() == ndim) {
    return SelectionMode::coordinate;
  }
  if (masks == 0 && items.size() == ndim && arrays + integers == ndim) {
    return SelectionMode::coordinate;
  }
  if (arrays > 1 && arrays != ndim) {
    raise(PyExc_IndexError,
          "several index arrays beside slices are ambiguous: use oindex for their outer product");
  }
  return SelectionMode::orthogonal;
}

SelectionMode mode_of(KeyKind kind, const std::vector<SelectionItem>& items, std::size_t ndim) {
  switch (kind) {
    case KeyKind::automatic:
      return automatic_mode(items, ndim);
    case KeyKind::orthogonal:
      return SelectionMode::orthogonal;
    case KeyKind::coordinate:
      return SelectionMode::coordinate;
    case KeyKind::block:
      return SelectionMode::block;
  }
  return SelectionMode::basic;
}

bool is_list_of_names(PyObject* item) {
  return PyList_CheckExact(item) && PyList_GET_SIZE(item) > 0 &&
         PyUnicode_Check(PyList_GET_ITEM(item, 0));
}

// Field names may stand anywhere in the key, as in zarr-python: a["f", 0:10], a[["f", "g"]].
void add_field(ParsedKey& parsed, PyObject* item) {
  if (parsed.fields.is_valid()) {
    raise(PyExc_IndexError, "a key takes one field name or one list of field names");
  }
  parsed.fields = nb::borrow(item);
}

void add_item(ParsedKey& parsed, std::vector<SelectionItem>& items, PyObject* item) {
  if (PyUnicode_Check(item) || is_list_of_names(item)) {
    add_field(parsed, item);
    return;
  }
  items.push_back(parse_item(item));
  if (!std::holds_alternative<std::int64_t>(items.back())) parsed.unbox = false;
}

}  // namespace

void check_fields(const ParsedKey& key, const DType& dtype) {
  if (!key.fields.is_valid()) return;
  auto check = [&](nb::handle field) {
    std::string name;
    // Of no UTF-8: it is the name of none.
    const bool is_text = nb::try_cast(field, name);
    if (!is_text) name = nb::cast<std::string>(nb::repr(field));
    if (is_text && dtype.kind() == DType::Kind::structure) {
      for (const StructField& known : dtype.fields()) {
        if (known.name == name) return;
      }
    }
    raise(PyExc_IndexError, "data type " + dtype.to_string() + " has no field \"" + name + "\"");
  };
  if (PyUnicode_Check(key.fields.ptr())) {
    check(key.fields);
  } else {
    for (nb::handle field : key.fields) check(field);
  }
}

ParsedKey parse_key(nb::handle key, KeyKind kind, std::size_t ndim) {
  ParsedKey parsed;
  parsed.unbox = true;
  std::vector<SelectionItem> items;
  if (PyTuple_Check(key.ptr())) {
    const Py_ssize_t count = PyTuple_GET_SIZE(key.ptr());
    items.reserve(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      add_item(parsed, items, PyTuple_GET_ITEM(key.ptr(), i));
    }
  } else {
    add_item(parsed, items, key.ptr());
  }
  const SelectionMode mode = mode_of(kind, items, ndim);
  parsed.selection = Selection(std::move(items), mode);
  return parsed;
}

}  // namespace headrace::python
