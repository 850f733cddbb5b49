// https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#metadata
#include <algorithm>
#include <initializer_list>
#include <set>

#include "base/checked.h"
#include "format/codec_specs.h"
#include "format/dtype_json.h"
#include "format/fill_value.h"
#include "format/json.h"
#include "format/metadata.h"
#include "format/metadata_checks.h"

namespace headrace {
namespace {

constexpr const char* kDocument = "zarr.json";

// An extension that may be ignored says so: {"must_understand": false, ...}.
bool may_be_ignored(const Json& value) {
  if (!value.is_object()) return false;
  const std::optional<Json> flag = value.find("must_understand");
  return flag && flag->kind() == Json::Kind::boolean && !flag->boolean();
}

void check_fields(const JsonObject& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.members()) {
    if (std::find(known.begin(), known.end(), key) != known.end() || may_be_ignored(value))
      continue;
    value.fail(ErrorCode::unsupported, "an unknown field without \"must_understand\": false");
  }
}

void check_format(const JsonObject& json) {
  const Json format = json.at("zarr_format");
  if (format.integer() != 3) {
    format.fail(ErrorCode::corrupt, "expected 3, found " + std::string(format.text()));
  }
}

void check_node_type(const JsonObject& json, std::string_view wanted) {
  const Json type = json.at("node_type");
  if (type.string() != wanted) {
    type.fail(ErrorCode::corrupt,
              "expected \"" + std::string(wanted) + "\", found " + std::string(type.text()));
  }
}

// An extension point: a name, or {"name", "configuration"}.
struct Extension {
  std::string name;
  std::optional<Json> configuration;
};

Extension extension(const Json& json) {
  if (json.is_string()) return {json.string(), std::nullopt};
  const JsonObject object(json);
  check_fields(object, {"name", "configuration", "must_understand"});
  return {object.at("name").string(), object.find("configuration")};
}

// Sets chunk_shape and chunk_edges.
void parse_chunk_grid(const Json& grid, ArrayMetadata& metadata) {
  const Extension point = extension(grid);
  if (point.name != "regular" && point.name != "rectilinear") {
    grid.fail(ErrorCode::unsupported, "chunk grid \"" + point.name + "\" is not known");
  }
  if (!point.configuration) grid.fail(ErrorCode::corrupt, "lacks a configuration");
  const Json& configuration = *point.configuration;
  if (point.name == "regular") {
    check_fields(JsonObject(configuration), {"chunk_shape"});
    metadata.chunk_shape = chunk_shape_from_json(configuration.at("chunk_shape"), metadata.shape);
    return;
  }
  check_fields(JsonObject(configuration), {"kind", "chunk_shapes"});
  const Json kind = configuration.at("kind");
  if (kind.string() != "inline") {
    kind.fail(ErrorCode::unsupported, "expected \"inline\", found " + std::string(kind.text()));
  }
  std::vector<ChunkEdges> edges =
      chunk_edges_from_json(configuration.at("chunk_shapes"), metadata.shape);
  bool regular = true;
  for (const ChunkEdges& dimension : edges) {
    metadata.chunk_shape.push_back(dimension.largest_extent());
    regular &= dimension.repeats;
  }
  if (!regular) metadata.chunk_edges = std::move(edges);
}

// Inner chunks divide every shard.
void check_shards(const ArrayMetadata& metadata) {
  check_sharding(metadata.codecs, metadata.chunk_shape);
  for (std::size_t d = 0; d < metadata.chunk_edges.size(); ++d) {
    std::set<std::int64_t> extents;
    for (const ChunkBand& band : metadata.chunk_edges[d].bands) extents.insert(band.extent);
    Shape shard = metadata.chunk_shape;
    for (const std::int64_t extent : extents) {
      shard[d] = extent;
      check_sharding(metadata.codecs, shard);
    }
  }
}

ChunkKeyEncoding chunk_keys(const Json& json) {
  const Extension point = extension(json);
  ChunkKeyEncoding encoding;
  if (point.name == "v2") {
    encoding = {false, '.'};
  } else if (point.name != "default") {
    json.fail(ErrorCode::unsupported, "chunk key encoding \"" + point.name + "\" is not known");
  }
  if (point.configuration) {
    check_fields(JsonObject(*point.configuration), {"separator"});
    if (const std::optional<Json> separator = point.configuration->find("separator")) {
      encoding.separator = separator_from_json(*separator);
    }
  }
  return encoding;
}

std::vector<std::optional<std::string>> dimension_names(const Json& json, std::size_t ndim) {
  std::vector<std::optional<std::string>> names;
  if (json.is_null()) return names;
  for (const Json& item : json.items(kMaxDimensions, "dimension names")) {
    if (item.is_null()) {
      names.emplace_back(std::nullopt);
    } else {
      names.emplace_back(item.string());
    }
  }
  if (names.size() != ndim) {
    json.fail(ErrorCode::corrupt,
              std::to_string(names.size()) + " names for " + std::to_string(ndim) + " dimensions");
  }
  return names;
}

std::string attributes_text(const JsonObject& json) {
  const std::optional<Json> attributes = json.find("attributes");
  if (!attributes || attributes->is_null()) return "{}";
  if (!attributes->is_object()) attributes->fail(ErrorCode::corrupt, "expected an object");
  return std::string(attributes->text());
}

void check_storage_transformers(const JsonObject& json) {
  const std::optional<Json> list = json.find("storage_transformers");
  if (!list || list->is_null()) return;
  for (const Json& item : list->items()) {
    if (!may_be_ignored(item))
      item.fail(ErrorCode::unsupported, "storage transformers are not known");
  }
}

std::map<std::string, std::string> consolidated_nodes(const Json& json) {
  const std::optional<Json> kind = json.find("kind");
  if (kind && kind->string() != "inline") {
    kind->fail(ErrorCode::unsupported, "expected \"inline\", found " + std::string(kind->text()));
  }
  std::map<std::string, std::string> nodes;
  for (const auto& [path, node] : json.at("metadata").members()) {
    check_node_path(path, node);
    if (!node.is_object()) node.fail(ErrorCode::corrupt, "expected an object");
    if (!nodes.emplace(path, node.text()).second) node.fail(ErrorCode::corrupt, "occurs twice");
  }
  return nodes;
}

}  // namespace

NodeType v3_node_type(std::string_view text) {
  const JsonObject json(Json::parse(text, kDocument));
  check_format(json);
  const Json type = json.at("node_type");
  const std::string name = type.string();
  if (name == "array") return NodeType::array;
  if (name == "group") return NodeType::group;
  type.fail(ErrorCode::corrupt,
            "expected \"array\" or \"group\", found " + std::string(type.text()));
}

ArrayMetadata parse_array_v3(std::string_view text) {
  const JsonObject json(Json::parse(text, kDocument));
  check_format(json);
  check_node_type(json, "array");
  check_fields(json,
               {"zarr_format",
                "node_type",
                "shape",
                "data_type",
                "chunk_grid",
                "chunk_key_encoding",
                "fill_value",
                "codecs",
                "attributes",
                "dimension_names",
                "storage_transformers"});
  check_storage_transformers(json);

  ArrayMetadata metadata;
  metadata.shape = shape_from_json(json.at("shape"), 0);
  parse_chunk_grid(json.at("chunk_grid"), metadata);
  metadata.chunk_keys = chunk_keys(json.at("chunk_key_encoding"));
  metadata.codecs = codecs_from_json(json.at("codecs"), metadata.ndim());
  metadata.dtype = dtype_from_json_v3(json.at("data_type"), stored_order(metadata.codecs));
  check_chunk_size(metadata.chunk_shape, metadata.dtype, kDocument);
  check_shards(metadata);
  const Json fill_value = json.at("fill_value");
  metadata.fill_value = fill_value_from_json(metadata.dtype, fill_value);
  metadata.fill_value_json = fill_value.text();
  if (const std::optional<Json> names = json.find("dimension_names")) {
    metadata.dimension_names = dimension_names(*names, metadata.ndim());
  }
  metadata.attributes = attributes_text(json);
  metadata.document = text;
  return metadata;
}

GroupMetadata parse_group_v3(std::string_view text) {
  const JsonObject json(Json::parse(text, kDocument));
  check_format(json);
  check_node_type(json, "group");
  const std::optional<Json> consolidated = json.find("consolidated_metadata");
  const bool has_nodes = consolidated && !consolidated->is_null();
  check_fields(json, {"zarr_format", "node_type", "attributes", "consolidated_metadata"});
  GroupMetadata metadata;
  metadata.attributes = attributes_text(json);
  metadata.document = text;
  if (has_nodes) metadata.consolidated = consolidated_nodes(*consolidated);
  return metadata;
}

}  // namespace headrace
