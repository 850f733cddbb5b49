#include "vlen.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>
#include <utility>

#include "dtype.h"
#include "numpy_api.h"

namespace headrace::python {

namespace {

// NumPy's functions for its strings, by their places in its table, which are its ABI since 2.0:
// https://numpy.org/doc/stable/reference/c-api/strings.html
struct StringApi {
  struct Text {
    std::size_t nbytes;
    const char* data;
  };
  int (*load)(void* allocator, const void* packed, Text* text);
  int (*pack)(void* allocator, void* packed, const char* data, std::size_t nbytes);
  void* (*acquire)(PyObject* dtype);
  void (*release)(void* allocator);
};

const StringApi& string_api() {
  static const StringApi api = [] {
    nb::object capsule = package_attribute("numpy._core._multiarray_umath", "_ARRAY_API");
    void** table = static_cast<void**>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
    if (table == nullptr) throw nb::python_error();
    return StringApi{reinterpret_cast<decltype(StringApi::load)>(table[313]),
                     reinterpret_cast<decltype(StringApi::pack)>(table[314]),
                     reinterpret_cast<decltype(StringApi::acquire)>(table[316]),
                     reinterpret_cast<decltype(StringApi::release)>(table[318])};
  }();
  return api;
}

// The type of an ndarray of NumPy's strings, which keeps them.
nb::object strings_of(nb::handle ndarray) {
  static_cast<void>(string_api());  // found with the GIL
  return steal_or_throw(PyObject_GetAttr(ndarray.ptr(), numpy().dtype_name));
}

// The strings of one type, locked for others: NumPy waits for that lock with the GIL, so that who
// has it must not wait for the GIL.
class StringAllocator {
 public:
  explicit StringAllocator(nb::handle dtype) : allocator_(string_api().acquire(dtype.ptr())) {}
  ~StringAllocator() { string_api().release(allocator_); }
  StringAllocator(const StringAllocator&) = delete;
  StringAllocator& operator=(const StringAllocator&) = delete;

  VlenElement load(const std::byte* packed) const {
    StringApi::Text text{0, nullptr};
    if (string_api().load(allocator_, packed, &text) != 0) {
      raise(PyExc_ValueError, "[write] data: a string that NumPy cannot load");
    }
    return {reinterpret_cast<const std::byte*>(text.data), text.nbytes};
  }

  bool pack(std::byte* packed, const VlenElement& element) const {
    const std::string_view text = element.text();
    return string_api().pack(allocator_, packed, text.data(), text.size()) == 0;
  }

 private:
  void* allocator_;
};

bool is_object_dtype(nb::handle numpy_dtype) {
  return nb::cast<std::string>(numpy_dtype.attr("kind")) == "O";
}

const VlenElement* elements_of(const Tensor& tensor) {
  return static_cast<const VlenElement*>(tensor.data());
}

nb::object unicode(const VlenElement& element) {
  const std::string_view text = element.text();
  return steal_or_throw(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr));
}

nb::object bytes_object(const VlenElement& element) {
  const std::string_view text = element.text();
  return steal_or_throw(
      PyBytes_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

// From elements to Python objects of one type.
class ToPython {
 public:
  explicit ToPython(const DType& dtype) : kind_(dtype.kind()) {
    if (kind_ == DType::Kind::object) loads_ = package_attribute("json", "loads");
    if (kind_ != DType::Kind::array) return;
    item_ = numpy_dtype(dtype.item());
    itemsize_ = dtype.item().itemsize();
  }

  nb::object operator()(const VlenElement& element) const {
    switch (kind_) {
      case DType::Kind::string:
        return unicode(element);
      case DType::Kind::object:
        return loads_(unicode(element));
      case DType::Kind::array: {
        const auto count = static_cast<std::int64_t>(element.nbytes / itemsize_);
        ArrayView array = empty_ndarray({count}, itemsize_, item_);
        if (count > 0) std::memcpy(array.view.data, element.data, element.nbytes);
        return std::move(array.keep_alive);
      }
      default:
        return bytes_object(element);
    }
  }

 private:
  DType::Kind kind_;
  nb::object loads_;
  nb::object item_;
  std::size_t itemsize_ = 1;
};

void fill_with_strings(const Tensor& tensor, nb::handle ndarray, std::byte* data) {
  const nb::object dtype = strings_of(ndarray);
  const VlenElement* const elements = elements_of(tensor);
  const std::size_t n = tensor.view().size();
  bool packed = true;
  {
    nb::gil_scoped_release release;
    const StringAllocator strings(dtype);
    for (std::size_t i = 0; i < n && packed; ++i) {
      packed = strings.pack(data + i * sizeof(VlenElement), elements[i]);
    }
  }
  if (!packed) raise(PyExc_MemoryError, "[read] out of memory for strings");
}

void fill_with_objects(const Tensor& tensor, std::byte* data) {
  const ToPython to_python(tensor.dtype());
  const VlenElement* const elements = elements_of(tensor);
  auto* const objects = reinterpret_cast<PyObject**>(data);
  const std::size_t n = tensor.view().size();
  for (std::size_t i = 0; i < n; ++i) {
    Py_XDECREF(std::exchange(objects[i], to_python(elements[i]).release().ptr()));
  }
}

// What a write's elements point into.
struct VlenSource {
  std::vector<VlenElement> elements;
  nb::object array;
  std::vector<nb::object> kept;  // objects that they point into: others may change the array
  std::vector<std::byte> texts;  // likewise, of NumPy's strings
};

// From Python objects to elements of one type.
class FromPython {
 public:
  FromPython(const DType& dtype, VlenSource& source) : dtype_(dtype), source_(source) {
    if (dtype.kind() == DType::Kind::object) dumps_ = package_attribute("headrace._json", "dumps");
    if (dtype.kind() == DType::Kind::array) item_ = numpy_dtype(dtype.item());
  }

  VlenElement operator()(nb::handle value) {
    switch (dtype_.kind()) {
      case DType::Kind::object:
        return text(keep(dumps_(value)));
      case DType::Kind::array:
        return items(value);
      case DType::Kind::string:
        if (is_missing(value)) return {};
        if (PyUnicode_Check(value.ptr())) return text(keep(nb::borrow(value)));
        break;
      default:
        if (is_missing(value)) return {};
        if (PyBytes_Check(value.ptr())) {
          keep(nb::borrow(value));
          return vlen_element(PyBytes_AS_STRING(value.ptr()), PyBytes_GET_SIZE(value.ptr()));
        }
    }
    raise(PyExc_TypeError,
          "[write] data: expected elements of " + dtype_.to_string() + ", got " +
              nb::cast<std::string>(nb::repr(value)));
  }

 private:
  nb::handle keep(nb::object value) { return source_.kept.emplace_back(std::move(value)); }

  // numcodecs writes these as empty, too.
  static bool is_missing(nb::handle value) {
    return value.is_none() || (PyLong_CheckExact(value.ptr()) && PyLong_AsLong(value.ptr()) == 0);
  }

  static VlenElement vlen_element(const char* data, Py_ssize_t nbytes) {
    return {reinterpret_cast<const std::byte*>(data), static_cast<std::size_t>(nbytes)};
  }

  static VlenElement text(nb::handle value) {
    Py_ssize_t nbytes = 0;
    const char* const data = PyUnicode_AsUTF8AndSize(value.ptr(), &nbytes);
    if (data == nullptr) throw nb::python_error();
    return vlen_element(data, nbytes);
  }

  VlenElement items(nb::handle value) {
    nb::module_ module = nb::module_::import_("numpy");
    nb::object array = module.attr("ascontiguousarray")(value, item_);
    const ArrayInterface* found = nullptr;
    nb::object capsule = array_interface(array, &found);
    if (found->nd != 1) raise(PyExc_ValueError, "[write] data: expected arrays of one dimension");
    const std::size_t nbytes = static_cast<std::size_t>(found->shape[0]) * dtype_.item().itemsize();
    keep(std::move(array));
    return {static_cast<const std::byte*>(found->data), nbytes};
  }

  const DType& dtype_;
  VlenSource& source_;
  nb::object dumps_;
  nb::object item_;
};

// Their texts lie in memory that a change of the array frees, and are read without the GIL later.
void copy_strings(VlenSource& source, const std::byte* items, std::size_t itemsize, std::size_t n) {
  const nb::object dtype = strings_of(source.array);
  const StringAllocator strings(dtype);
  std::size_t nbytes = 0;
  for (std::size_t i = 0; i < n; ++i) {
    source.elements.push_back(strings.load(items + i * itemsize));
    nbytes += source.elements.back().nbytes;
  }
  source.texts.reserve(nbytes);
  for (VlenElement& element : source.elements) {
    const std::byte* const from = element.data;
    element.data = source.texts.data() + source.texts.size();
    source.texts.insert(source.texts.end(), from, from + element.nbytes);
  }
}

}  // namespace

nb::object vlen_to_ndarray(const Tensor& tensor, nb::handle numpy_dtype) {
  nb::object array = nb::borrow(numpy().empty)(shape_tuple(tensor.shape()), numpy_dtype);
  const ArrayInterface* found = nullptr;
  nb::object capsule = array_interface(array, &found);
  auto* const data = static_cast<std::byte*>(found->data);
  if (is_object_dtype(numpy_dtype)) {
    fill_with_objects(tensor, data);
  } else {
    fill_with_strings(tensor, array, data);
  }
  return array;
}

nb::object vlen_to_output(const Tensor& tensor, nb::object out, nb::handle numpy_dtype) {
  if (PyObject_TypeCheck(out.ptr(), reinterpret_cast<PyTypeObject*>(numpy().ndarray)) == 0) {
    raise(PyExc_TypeError, "[read] out: expected an ndarray for elements of variable length");
  }
  nb::object found = out.attr("dtype");
  if (!found.equal(numpy_dtype) && !is_object_dtype(found)) {
    raise(PyExc_ValueError,
          "[read] out: expected dtype " + nb::cast<std::string>(nb::str(numpy_dtype)) + ", got " +
              nb::cast<std::string>(nb::str(found)));
  }
  nb::object shape = out.attr("shape");
  nb::object wanted = shape_tuple(tensor.shape());
  if (!shape.equal(wanted)) {
    raise(PyExc_ValueError,
          "[read] out has shape " + nb::cast<std::string>(nb::str(shape)) + ", the selection " +
              nb::cast<std::string>(nb::str(wanted)));
  }
  out[nb::ellipsis()] = vlen_to_ndarray(tensor, found);
  return out;
}

ArrayView vlen_input(nb::handle data, const DType& dtype, nb::handle numpy_dtype) {
  auto source = std::make_unique<VlenSource>();
  source->array = nb::borrow(numpy().asarray)(data, numpy_dtype, nb::arg("order") = "C");
  const ArrayInterface* found = nullptr;
  nb::object capsule = array_interface(source->array, &found);
  ArrayView result;
  result.view.shape.assign(found->shape, found->shape + found->nd);
  result.view.dtype = dtype;
  const std::size_t n = result.view.size();
  source->elements.reserve(n);
  const auto* const items = static_cast<const std::byte*>(found->data);
  if (is_object_dtype(numpy_dtype)) {
    FromPython from_python(dtype, *source);
    source->kept.reserve(n);
    const auto* const objects = reinterpret_cast<PyObject* const*>(items);
    for (std::size_t i = 0; i < n; ++i) {
      // Held from the start: what is called for one element may let other threads run.
      const nb::object value = objects[i] == nullptr ? nb::none() : nb::borrow(objects[i]);
      source->elements.push_back(from_python(value));
    }
  } else {
    copy_strings(*source, items, static_cast<std::size_t>(found->itemsize), n);
  }
  result.view.data = source->elements.data();
  result.keep_alive = nb::capsule(
      source.release(), [](void* owned) noexcept { delete static_cast<VlenSource*>(owned); });
  return result;
}

nb::object vlen_to_python(const VlenElement& element, const DType& dtype) {
  return ToPython(dtype)(element);
}

std::vector<std::byte> vlen_bytes(nb::handle value, const DType& dtype) {
  VlenSource source;
  const VlenElement element = FromPython(dtype, source)(value);
  return {element.data, element.data + element.nbytes};
}

}  // namespace headrace::python
