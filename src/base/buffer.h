#pragma once

#include <cstddef>
#include <memory>

#include "base/bytes.h"

namespace headrace {

// Memory of at least `nbytes`, uninitialised, aligned to 64 bytes; large blocks ask for huge pages
// and may come from a small cache of blocks freed before (fresh pages cost more than the copy into
// them). Freed by the deleter of the pointer. Throws `out_of_memory`.
std::shared_ptr<std::byte> allocate_shared(std::size_t nbytes);

// Owned bytes that keep their capacity: a buffer reused for the next chunk touches no fresh page.
// Movable, not copyable.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t nbytes) { resize(nbytes); }
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }

  // New bytes are uninitialised; old contents are lost (resize_keep keeps them).
  void resize(std::size_t nbytes);
  // As resize, but the first min(old, new) bytes stay.
  void resize_keep(std::size_t nbytes);
  void append(ConstBytes bytes);
  void assign(ConstBytes bytes);
  void clear() { size_ = 0; }
  // Gives the memory back.
  void reset();

  MutableBytes bytes() { return {data_, size_}; }
  ConstBytes bytes() const { return {data_, size_}; }
  operator ConstBytes() const { return bytes(); }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace headrace
