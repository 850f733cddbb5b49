#pragma once

#include <optional>
#include <string>
#include <vector>

#include "format/json.h"
#include "format/numpy_str.h"
#include "headrace/codec.h"
#include "headrace/dtype.h"
#include "headrace/tensor.h"

namespace headrace {

// A v3 "codecs" list: each a name, or {"name", "configuration"}.
std::vector<CodecSpec> codecs_from_json(const Json& list);
std::string codecs_to_json(const std::vector<CodecSpec>& codecs);

// The byte order that the chain's "bytes" codec writes, inside of shards too; little when it says
// none: https://github.com/zarr-developers/zarr-extensions/tree/main/data-types/structured
ByteOrder stored_order(const std::vector<CodecSpec>& codecs);

// `corrupt` when a shard's inner chunks do not divide it, at any depth.
void check_sharding(const std::vector<CodecSpec>& codecs, const Shape& chunk_shape, int depth = 0);

// Gives blosc codecs that leave it open their typesize.
std::vector<CodecSpec> with_typesize(std::vector<CodecSpec> codecs, std::size_t itemsize);

// v2's order, byte order, filters and compressor as one chain, and back.
struct V2Codecs {
  char order = 'C';
  ByteOrder byte_order = ByteOrder::none;
  std::string filters = "null";     // JSON
  std::string compressor = "null";  // JSON
};
std::vector<CodecSpec> lower_v2_codecs(const JsonObject& zarray,
                                       const DType& dtype,
                                       ByteOrder byte_order,
                                       std::size_t ndim);
// `unsupported` for chains that v2 cannot say.
V2Codecs raise_v2_codecs(const std::vector<CodecSpec>& codecs,
                         const DType& dtype,
                         std::size_t ndim);

// A chain for v3 with numcodecs' filters that stand behind "bytes", as those of v2 do, in front of
// it, where v3 has them. The encoded bytes stay the same, but for big-endian ones, which become
// little-endian. `unsupported` for filters that cannot be moved.
std::vector<CodecSpec> with_filters_in_front(std::vector<CodecSpec> codecs);

// What the objects are that a v2 filter makes bytes of, by its name and configuration; nothing for
// other filters. `unsupported` for "pickle".
std::optional<DType> v2_object_type(std::string_view id, const Json& configuration);

// The filter that says what the objects of a v2 "|O" array are; nothing when none does.
std::optional<Json> v2_object_filter(const JsonObject& zarray);

// A list of extents, each at least `minimum`; at most 64 of them (NumPy's limit).
Shape shape_from_json(const Json& list, std::int64_t minimum);
std::string shape_to_json(const Shape& shape);

}  // namespace headrace
