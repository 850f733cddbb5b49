#pragma once

// headrace.Array is bound in four files: reading, Arrow's layout, writing, and the protocols of
// Python and DLPack.

#include <array>

#include "common.h"
#include "handles.h"
#include "selection.h"

namespace headrace::python {

// a.oindex, a.vindex, a.blocks
struct Indexer {
  nb::object array;
  KeyKind kind;
};

inline constexpr std::array<const char*, 3> kShardOrders = {
    "lexicographic", "colexicographic", "morton"};  // by ShardOrder

// A tuple, or None.
nb::object dimension_names(PyArray& self);
// The key of an array, which may be a dict by dimension.
ParsedKey parse_key(PyArray& self, nb::handle key, KeyKind kind);
// That of read() and its like: None is the whole array, and results are never scalars.
ParsedKey parse_selection(PyArray& self, nb::handle selection);
ReadOptions read_options(const Device& device, nb::handle stream, nb::handle implementations);
// A result as Python sees it: an ndarray or a DeviceArray.
nb::object wrap(Tensor&& tensor, nb::handle numpy_dtype);
// What `key` selects, in new memory of the device of `array`, a handle of the same array.
nb::object read_new(PyArray& self,
                    const Array& array,
                    const ParsedKey& key,
                    const ReadOptions& options);
void setitem(PyArray& self, nb::handle key, nb::handle value, KeyKind kind);
void bind_array_write(nb::class_<PyArray>& cls);
void bind_array_protocols(nb::class_<PyArray>& cls);
void bind_array_ragged(nb::class_<PyArray>& cls);
void bind_indexer_ragged(nb::class_<Indexer>& cls);

}  // namespace headrace::python
