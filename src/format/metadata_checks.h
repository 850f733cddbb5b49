#pragma once

// Checks that both formats share.

#include <string>
#include <string_view>
#include <vector>

#include "format/chunk_edges.h"
#include "format/json.h"
#include "headrace/dtype.h"
#include "headrace/tensor.h"

namespace headrace {

// Extents of at least 1, as many as `shape` has. zarr-python 2 wrote 0 for dimensions of no extent.
Shape chunk_shape_from_json(const Json& list, const Shape& shape);

// Of a rectilinear grid, "chunk_shapes": a dimension each an extent, or a list of extents and
// [extent, count] pairs. They reach to the end of the array at least.
// https://github.com/zarr-developers/zarr-extensions/tree/main/chunk-grids/rectilinear
std::vector<ChunkEdges> chunk_edges_from_json(const Json& list, const Shape& shape);
std::string chunk_edges_to_json(const std::vector<ChunkEdges>& edges);

// `unsupported` for chunks past 2^48 bytes: nothing that adds to their size overflows then.
void check_chunk_size(const Shape& chunk_shape, const DType& dtype, const char* document);

char separator_from_json(const Json& json);

// Paths of consolidated nodes become keys of the store: "a/b", no empty, "." or ".." part.
void check_node_path(std::string_view path, const Json& where);

}  // namespace headrace
