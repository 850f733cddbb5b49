#pragma once

// v2 and v3 metadata documents to one internal model and back. Pure: text in, text out.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/chunk_edges.h"
#include "headrace/codec.h"
#include "headrace/dtype.h"
#include "headrace/tensor.h"

namespace headrace {

// Chunk keys: "c/0/1" (v3 default) or "0.1" (v3 "v2" encoding and v2).
struct ChunkKeyEncoding {
  bool default_prefix = true;  // "c" first
  char separator = '/';
  // Appends the key of the chunk at `coordinates` to `out`.
  void append(std::string& out, const std::int64_t* coordinates, std::size_t ndim) const;
  // The coordinates of a key; nothing when it is no chunk key of this encoding and rank.
  std::optional<std::vector<std::int64_t>> parse(std::string_view key, std::size_t ndim) const;
};

// One array, whatever version stored it.
struct ArrayMetadata {
  int zarr_format = 3;
  Shape shape;
  // Of the stored unit: the shard when sharded. Of a rectilinear grid the largest extents.
  Shape chunk_shape;
  std::vector<ChunkEdges> chunk_edges;  // of a rectilinear grid, one a dimension; else empty
  DType dtype;
  ChunkKeyEncoding chunk_keys;
  // v3's chain, or what v2's order, byte order, filters and compressor mean as one:
  // transpose?, array -> array*, array -> bytes, bytes -> bytes*.
  std::vector<CodecSpec> codecs;
  // dtype.itemsize() native bytes, or those that a variable-length element points at; nothing for
  // v2's null (read as zero).
  std::optional<std::vector<std::byte>> fill_value;
  std::string fill_value_json;                              // as stored, or as it will be
  std::vector<std::optional<std::string>> dimension_names;  // empty: none given
  std::string attributes = "{}";                            // JSON object
  // The document as stored; edits (shape, attributes) keep every other field of it.
  std::string document;

  std::size_t ndim() const { return shape.size(); }
};

// Configuration of the "sharding_indexed" codec.
struct ShardingConfig {
  Shape chunk_shape;
  std::vector<CodecSpec> codecs;
  std::vector<CodecSpec> index_codecs;
  bool index_at_end = true;
};
ShardingConfig parse_sharding(const CodecSpec& spec);

struct GroupMetadata {
  int zarr_format = 3;
  std::string attributes = "{}";
  std::string document;
  // Path relative to the group -> the node's own document (v3 zarr.json; v2: attributes joined in
  // under "attributes"). Present when metadata was consolidated.
  std::optional<std::map<std::string, std::string>> consolidated;
};

enum class NodeType { array, group };

// zarr.json: which of the two it is. `corrupt` for anything else.
NodeType v3_node_type(std::string_view json);

// `corrupt` for malformed documents, `unsupported` (naming the field) for what is valid but
// unknown.
ArrayMetadata parse_array_v3(std::string_view zarr_json);
GroupMetadata parse_group_v3(std::string_view zarr_json);
ArrayMetadata parse_array_v2(std::string_view zarray, std::string_view zattrs);
GroupMetadata parse_group_v2(std::string_view zgroup, std::string_view zattrs);
// .zmetadata: path -> the texts of its .zarray/.zgroup/.zattrs.
struct V2Node {
  std::string zarray, zgroup, zattrs;
};
std::map<std::string, V2Node> parse_consolidated_v2(std::string_view zmetadata);

// The documents of a new node.
std::string write_array_v3(const ArrayMetadata& metadata);
std::string write_array_v2(const ArrayMetadata& metadata);  // .zarray; .zattrs is `attributes`
std::string write_group_v3(std::string_view attributes);
std::string write_group_v2();
// A stored document with another shape or other attributes, all else kept but for chunk extents of
// 0: they stand where there are no elements, are read as 1, and would be wrong for others.
// `edges`: of a rectilinear grid, as they are from now on.
std::string with_shape(std::string_view document,
                       const Shape& shape,
                       const std::vector<ChunkEdges>& edges = {});
std::string with_attributes(std::string_view zarr_json, std::string_view attributes);
// The .zarray with the filters and the compressor as `metadata` has them.
std::string with_v2_codecs(const ArrayMetadata& metadata);
// v3: a group's document with its consolidated metadata replaced (path -> zarr.json text).
std::string with_consolidated(std::string_view zarr_json,
                              const std::map<std::string, std::string>& nodes);
std::string write_consolidated_v2(const std::map<std::string, V2Node>& nodes);

// Checks that `text` is a JSON object and returns it compact. invalid_argument.
std::string checked_json_object(std::string_view text, const char* what);

// A chunk shape for arrays created with chunks="auto": 1-4 MiB, whole trailing dimensions first.
Shape auto_chunks(const Shape& shape, std::size_t itemsize);

// Fill values. The JSON of `bytes` in the dialect of `zarr_format`, and back.
std::string fill_value_to_json(const DType& dtype,
                               const std::vector<std::byte>& bytes,
                               int zarr_format);
std::optional<std::vector<std::byte>> fill_value_from_json(const DType& dtype,
                                                           std::string_view json,
                                                           int zarr_format);

}  // namespace headrace
