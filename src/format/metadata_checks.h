#pragma once

// Checks that both formats share.

#include <string_view>

#include "format/json.h"
#include "headrace/dtype.h"
#include "headrace/tensor.h"

namespace headrace {

// Extents of at least 1, as many as `shape` has. zarr-python 2 wrote 0 for dimensions of no extent.
Shape chunk_shape_from_json(const Json& list, const Shape& shape);

// `unsupported` for chunks past 2^48 bytes: nothing that adds to their size overflows then.
void check_chunk_size(const Shape& chunk_shape, const DType& dtype, const char* document);

char separator_from_json(const Json& json);

// Paths of consolidated nodes become keys of the store: "a/b", no empty, "." or ".." part.
void check_node_path(std::string_view path, const Json& where);

}  // namespace headrace
