#pragma once

#include "common.h"

namespace headrace::python {

// The key of a[...], a.oindex[...] and so on, parsed.
struct ParsedKey {
  Selection selection;
  // A result without dimensions becomes a NumPy scalar, as NumPy does for a key of integers only.
  bool unbox = false;
  // Field name, or list of them, of a structured type; null for all.
  nb::object fields;
};

enum class KeyKind {
  automatic,  // a[...]: basic, coordinate or orthogonal, as zarr-python 3 decides
  orthogonal,
  coordinate,
  block,
};

// IndexError when the key names a field that `dtype` does not have.
void check_fields(const ParsedKey& key, const DType& dtype);

ParsedKey parse_key(nb::handle key, KeyKind kind, std::size_t ndim);

}  // namespace headrace::python
