#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/json.h"
#include "format/numpy_str.h"
#include "headrace/codec.h"
#include "headrace/dtype.h"
#include "headrace/tensor.h"

namespace headrace {

// In front of the names that numcodecs' codecs have in v3.
inline constexpr std::string_view kNumcodecs = "numcodecs.";
// The name without it.
std::string_view plain_id(const CodecSpec& spec);
// {} where there is none.
Json configuration_of(const CodecSpec& spec);

// A v3 "codecs" list: each a name, or {"name", "configuration"}. What drafts of v3 said in other
// words ("endian", a transpose to "F") is as the specification says it. `ndim`: of the array.
std::vector<CodecSpec> codecs_from_json(const Json& list, std::size_t ndim);
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
// netCDF-C shuffles elements of `itemsize` where it writes an elementsize of 0, which numcodecs
// takes for no shuffle.
void name_shuffled_size(std::vector<CodecSpec>& codecs, std::size_t itemsize);
// `unsupported` for chains that v2 cannot say.
V2Codecs raise_v2_codecs(const std::vector<CodecSpec>& codecs,
                         const DType& dtype,
                         std::size_t ndim);

// A chain as v3 says it, and others that read v3 take it:
//  - numcodecs' filters that stand behind "bytes", as those of v2 do, in front of it. The encoded
//    bytes stay the same, but for big-endian ones, which become little-endian.
//  - pcodec and zfpy without "bytes", which they take the place of.
//  - a quantize that changes the type as one that does not, and an astype.
//  - levels within v3's bounds.
// `unsupported` for filters that cannot be moved, and codecs that v3 has no place for.
std::vector<CodecSpec> lower_to_v3(std::vector<CodecSpec> codecs);

// What the objects are that a v2 filter makes bytes of, by its name and configuration; nothing for
// other filters. `unsupported` for "pickle".
std::optional<DType> v2_object_type(std::string_view id, const Json& configuration);

// The filter that says what the objects of a v2 "|O" array are; nothing when none does.
std::optional<Json> v2_object_filter(const JsonObject& zarray);

// A list of extents, each at least `minimum`; at most 64 of them (NumPy's limit).
Shape shape_from_json(const Json& list, std::int64_t minimum);
std::string shape_to_json(const Shape& shape);

}  // namespace headrace
