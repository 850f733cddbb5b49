// New documents, in the layout of zarr-python; edits of stored ones change nothing else in them.
#include <algorithm>

#include "base/checked.h"
#include "format/codec_specs.h"
#include "format/dtype_json.h"
#include "format/json.h"
#include "format/metadata.h"
#include "format/metadata_checks.h"

namespace headrace {
namespace {

std::string fill_value_text(const ArrayMetadata& metadata) {
  if (metadata.fill_value) {
    return fill_value_to_json(metadata.dtype, *metadata.fill_value, metadata.zarr_format);
  }
  if (metadata.dtype.variable_length() && !metadata.fill_value_json.empty()) {
    const Json stored = Json::parse(metadata.fill_value_json, "fill_value");
    if (!stored.is_null()) return stored.compact();
  }
  if (metadata.zarr_format == 2) return "null";
  // v3 has no null: zero, in the dialect of the type, or nothing.
  const std::size_t nbytes = metadata.dtype.variable_length() ? 0 : metadata.dtype.itemsize();
  return fill_value_to_json(metadata.dtype, std::vector<std::byte>(nbytes), 3);
}

// Chunk extents of 0, which zarr-python 2 could write for arrays without elements and which mean
// nothing for others, as the 1 that they are read as; nothing when there are none.
std::optional<std::string> without_zeros(const Json& chunks) {
  Shape extents = shape_from_json(chunks, 0);
  if (std::ranges::find(extents, 0) == extents.end()) return std::nullopt;
  std::ranges::replace(extents, 0, 1);
  return shape_to_json(extents);
}

std::string quoted(char c) { return json_quote(std::string_view(&c, 1)); }

// v3 says the byte order once, for all fields.
void check_field_order(const DType& dtype, ByteOrder order) {
  for (const StructField& field : dtype.fields()) {
    check_field_order(field.dtype, order);
    if (field.dtype.swap_size() > 1 && field.big_endian != (order == ByteOrder::big)) {
      throw Error(ErrorCode::unsupported,
                  "field \"" + field.name + "\": its byte order is not that of the bytes codec");
    }
  }
}

std::string chunk_grid_text(const Shape& chunk_shape, const std::vector<ChunkEdges>& edges) {
  if (edges.empty()) {
    return "{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":" +
           shape_to_json(chunk_shape) + "}}";
  }
  return "{\"name\":\"rectilinear\",\"configuration\":{\"kind\":\"inline\",\"chunk_shapes\":" +
         chunk_edges_to_json(edges) + "}}";
}

std::string names_text(const std::vector<std::optional<std::string>>& names) {
  std::string text = "[";
  for (const auto& name : names) {
    if (text.size() > 1) text += ",";
    text += name ? json_quote(*name) : "null";
  }
  return text + "]";
}

}  // namespace

std::string checked_json_object(std::string_view text, const char* what) {
  try {
    const Json json = Json::parse(text, what);
    if (json.is_object()) return json.compact();
    json.fail(ErrorCode::invalid_argument, "expected a JSON object");
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, error.what());
  }
}

std::string write_array_v3(const ArrayMetadata& metadata) {
  check_field_order(metadata.dtype, stored_order(metadata.codecs));
  const ChunkKeyEncoding& keys = metadata.chunk_keys;
  std::string text = "{\"shape\":" + shape_to_json(metadata.shape);
  text += ",\"data_type\":" + dtype_to_json_v3(metadata.dtype);
  text += ",\"chunk_grid\":" + chunk_grid_text(metadata.chunk_shape, metadata.chunk_edges);
  text += std::string(",\"chunk_key_encoding\":{\"name\":\"") +
          (keys.default_prefix ? "default" : "v2") +
          "\",\"configuration\":{\"separator\":" + quoted(keys.separator) + "}}";
  text += ",\"fill_value\":" + fill_value_text(metadata);
  const std::size_t typesize = metadata.dtype.variable_length() ? 1 : metadata.dtype.itemsize();
  text += ",\"codecs\":" + codecs_to_json(with_typesize(metadata.codecs, typesize));
  text += ",\"attributes\":" + checked_json_object(metadata.attributes, "attributes");
  if (!metadata.dimension_names.empty()) {
    text += ",\"dimension_names\":" + names_text(metadata.dimension_names);
  }
  text += ",\"zarr_format\":3,\"node_type\":\"array\",\"storage_transformers\":[]}";
  return json_pretty(text);
}

std::string write_array_v2(const ArrayMetadata& metadata) {
  if (metadata.chunk_keys.default_prefix) {
    throw Error(ErrorCode::unsupported,
                "chunk keys with the prefix \"c\" cannot be said in Zarr v2");
  }
  const V2Codecs codecs = raise_v2_codecs(metadata.codecs, metadata.dtype, metadata.ndim());
  std::string text = "{\"shape\":" + shape_to_json(metadata.shape);
  text += ",\"chunks\":" + shape_to_json(metadata.chunk_shape);
  text += ",\"dtype\":" + dtype_to_json_v2(metadata.dtype, codecs.byte_order);
  text += ",\"fill_value\":" + fill_value_text(metadata);
  text += ",\"order\":" + quoted(codecs.order);
  text += ",\"filters\":" + codecs.filters;
  text += ",\"dimension_separator\":" + quoted(metadata.chunk_keys.separator);
  text += ",\"compressor\":" + codecs.compressor;
  return json_pretty(text + ",\"zarr_format\":2}");
}

std::string write_group_v3(std::string_view attributes) {
  return json_pretty("{\"attributes\":" +
                     (attributes.empty() ? "{}" : checked_json_object(attributes, "attributes")) +
                     ",\"zarr_format\":3,\"node_type\":\"group\"}");
}

std::string write_group_v2() { return json_pretty("{\"zarr_format\":2}"); }

std::string with_shape(std::string_view document,
                       const Shape& shape,
                       const std::vector<ChunkEdges>& edges) {
  std::string text =
      json_with_member(Json::parse(document, "metadata"), "shape", shape_to_json(shape));
  const Json resized = Json::parse(text, "metadata");
  if (!edges.empty()) return json_with_member(resized, "chunk_grid", chunk_grid_text({}, edges));
  if (const auto chunks = resized.find("chunks")) {
    if (const auto mended = without_zeros(*chunks)) {
      return json_with_member(resized, "chunks", *mended);
    }
  } else if (const auto grid = resized.find("chunk_grid")) {
    const Json configuration = grid->at("configuration");
    const auto extents = configuration.find("chunk_shape");
    if (const auto mended = extents ? without_zeros(*extents) : std::nullopt) {
      const std::string changed = json_with_member(configuration, "chunk_shape", *mended);
      return json_with_member(
          resized, "chunk_grid", json_with_member(*grid, "configuration", changed));
    }
  }
  return text;
}

std::string with_attributes(std::string_view zarr_json, std::string_view attributes) {
  return json_with_member(Json::parse(zarr_json, "zarr.json"),
                          "attributes",
                          checked_json_object(attributes, "attributes"));
}

std::string with_v2_codecs(const ArrayMetadata& metadata) {
  const V2Codecs codecs = raise_v2_codecs(metadata.codecs, metadata.dtype, metadata.ndim());
  const Json stored = Json::parse(metadata.document, ".zarray");
  const std::string filtered = json_with_member(stored, "filters", codecs.filters);
  return json_with_member(Json::parse(filtered, ".zarray"), "compressor", codecs.compressor);
}

std::string with_consolidated(std::string_view zarr_json,
                              const std::map<std::string, std::string>& nodes) {
  std::string text;
  for (const auto& [path, node] : nodes) {
    text += (text.empty() ? "" : ",") + json_quote(path) + ":" + Json::parse(node, path).compact();
  }
  const std::string value =
      "{\"kind\":\"inline\",\"must_understand\":false,\"metadata\":{" + text + "}}";
  return json_pretty(
      json_with_member(Json::parse(zarr_json, "zarr.json"), "consolidated_metadata", value));
}

std::string write_consolidated_v2(const std::map<std::string, V2Node>& nodes) {
  std::string text;
  for (const auto& [path, node] : nodes) {
    const std::string prefix = path.empty() ? "" : path + "/";
    const std::pair<const char*, const std::string&> parts[] = {
        {".zarray", node.zarray}, {".zattrs", node.zattrs}, {".zgroup", node.zgroup}};
    for (const auto& [name, document] : parts) {
      if (document.empty()) continue;
      const std::string key = prefix + name;
      text +=
          (text.empty() ? "" : ",") + json_quote(key) + ":" + Json::parse(document, key).compact();
    }
  }
  return json_pretty("{\"metadata\":{" + text + "},\"zarr_consolidated_format\":1}");
}

}  // namespace headrace
