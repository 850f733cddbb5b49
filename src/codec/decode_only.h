#pragma once

// bytes -> bytes of formats whose files are read by references, and written by other libraries.

#include "codec/codec.h"
#include "headrace/error.h"

namespace headrace {

class DecodeOnly : public Codec {
 public:
  CodecKind kind() const override { return CodecKind::bytes_to_bytes; }
  std::string_view implementation() const override { return "headrace"; }
  void check_encodes() const final {
    throw Error(ErrorCode::unsupported, "is read only; headrace has no encoder for it");
  }
  void encode(ConstBytes, Buffer&) const final { check_encodes(); }
};

}  // namespace headrace
