#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common.h"
#include "gil.h"

namespace headrace::python {

// How a store was opened: what pickling needs to open it again.
struct Origin {
  std::string url;  // empty when the store cannot be opened again by name
  StorageOptions options;
  bool read_only = false;
  std::shared_ptr<void> python_store{};  // the object that serves the keys; null for a driver's
};

// RuntimeError where a call that waits would wait for what its own thread is to do: the event loop
// of a store of Python.
void check_caller(const std::shared_ptr<const Origin>& origin);

// Lets a handle go. Where a store of Python's is behind it, the last one waits for requests that
// are under way, and these for the GIL.
template <typename Handle>
void let_go(Handle& handle, const std::shared_ptr<const Origin>& origin) {
  if (!origin || !origin->python_store || interpreter_is_gone() || !PyGILState_Check()) return;
  Handle last = std::move(handle);
  const nb::gil_scoped_release release;
  [[maybe_unused]] const Handle gone = std::move(last);
}

// headrace.Store
struct PyStore {
  PyStore(Store handle, std::shared_ptr<const Origin> place)
      : store(std::move(handle)), origin(std::move(place)) {}
  PyStore(const PyStore&) = default;
  PyStore(PyStore&&) = default;
  PyStore& operator=(const PyStore&) = default;
  PyStore& operator=(PyStore&&) = default;
  ~PyStore() { let_go(store, origin); }

  Store store;
  std::shared_ptr<const Origin> origin;
};

// The end of a `with` block, by what __exit__ is given: close(), or discard() when it raised.
void leave_store(Store store, const nb::args& raised);

// headrace.Array
class PyArray {
 public:
  PyArray(Array handle, std::shared_ptr<const Origin> place, Implementations by_codec = {})
      : array(std::move(handle)),
        origin(std::move(place)),
        implementations(std::move(by_codec)),
        dtype(array.dtype()),
        ndim(array.shape().size()) {}
  PyArray(const PyArray&) = default;
  PyArray(PyArray&&) = default;
  PyArray& operator=(const PyArray&) = default;
  PyArray& operator=(PyArray&&) = default;
  ~PyArray() { let_go(array, origin); }

  Array array;
  std::shared_ptr<const Origin> origin;
  Implementations implementations;
  DType dtype;
  std::size_t ndim;

  // Made when first asked for: some types need ml_dtypes.
  const nb::object& numpy_dtype();

 private:
  nb::object numpy_dtype_;
};

// headrace._core.Group
struct PyGroup {
  PyGroup(Group handle, std::shared_ptr<const Origin> place)
      : group(std::move(handle)), origin(std::move(place)) {}
  PyGroup(const PyGroup&) = default;
  PyGroup(PyGroup&&) = default;
  PyGroup& operator=(const PyGroup&) = default;
  PyGroup& operator=(PyGroup&&) = default;
  ~PyGroup() { let_go(group, origin); }

  Group group;
  std::shared_ptr<const Origin> origin;
};

}  // namespace headrace::python
