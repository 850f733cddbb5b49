#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "common.h"
#include "future.h"

namespace headrace::python {

// The contiguous bytes of an object with the buffer protocol, held for as long as this lives.
class BufferBytes {
 public:
  explicit BufferBytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~BufferBytes() { PyBuffer_Release(&view_); }
  BufferBytes(const BufferBytes&) = delete;
  BufferBytes& operator=(const BufferBytes&) = delete;

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

// The last owner may be a thread without the GIL.
inline std::shared_ptr<BufferBytes> shared_bytes(nb::handle object) {
  return {new BufferBytes(object), [](BufferBytes* held) {
            const GilIfAlive gil;
            if (gil) delete held;
          }};
}

}  // namespace headrace::python
