#pragma once

// Scratch memory of the calling thread, reused from chunk to chunk: no allocation and no fresh page
// in the steady state. Leases nest, as codecs do within shards.

#include <memory>

#include "base/buffer.h"

namespace headrace {

class Scratch {
 public:
  Scratch();
  explicit Scratch(std::size_t nbytes) : Scratch() { buffer_->resize(nbytes); }
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Buffer& operator*() { return *buffer_; }
  Buffer* operator->() { return buffer_.get(); }
  std::byte* data() { return buffer_->data(); }
  MutableBytes bytes() { return buffer_->bytes(); }

 private:
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace headrace
