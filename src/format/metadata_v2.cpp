// https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html
#include <algorithm>

#include "base/checked.h"
#include "format/codec_specs.h"
#include "format/dtype_json.h"
#include "format/fill_value.h"
#include "format/json.h"
#include "format/metadata.h"
#include "format/metadata_checks.h"

namespace headrace {
namespace {

void check_format(const JsonObject& json) {
  const Json format = json.at("zarr_format");
  if (format.integer() != 2) {
    format.fail(ErrorCode::corrupt, "expected 2, found " + std::string(format.text()));
  }
}

// Objects have a meaning only with the filter that writes them.
NumpyType object_type(const JsonObject& zarray, const Json& dtype) {
  const std::optional<Json> filter = v2_object_filter(zarray);
  if (!filter) dtype.fail(ErrorCode::unsupported, "objects without a filter for them");
  return {*v2_object_type(filter->at("id").string(), *filter), ByteOrder::none};
}

std::string attributes_text(std::string_view zattrs) {
  if (zattrs.empty()) return "{}";
  const Json json = Json::parse(zattrs, ".zattrs");
  if (!json.is_object()) json.fail(ErrorCode::corrupt, "expected an object");
  return std::string(json.text());
}

// xarray keeps the names of the dimensions in this attribute. It is a convention, not the format:
// what does not look like it is left alone.
std::vector<std::optional<std::string>> dimension_names(const std::string& attributes,
                                                        std::size_t ndim) {
  std::vector<std::optional<std::string>> names;
  const std::optional<Json> list = Json::parse(attributes, ".zattrs").find("_ARRAY_DIMENSIONS");
  if (!list || !list->is_array()) return names;
  for (const Json& item : list->items()) {
    if (!item.is_string()) return {};
    names.emplace_back(item.string());
  }
  if (names.size() != ndim) names.clear();
  return names;
}

bool is_object_string(const Json& dtype) {
  if (!dtype.is_string()) return false;
  const std::string text = dtype.string();
  return text == "|O" || text == "O" || text == "|O8";
}

// Whether netCDF-C may have written the array: it says so, or names dimensions as it does. With
// mode=noxarray it does neither, but begins with the format, which zarr-python writes last or, of
// old, in the order of the alphabet.
bool is_of_netcdf(const JsonObject& zarray, const std::string& attributes) {
  const Json zattrs = Json::parse(attributes, ".zattrs");
  return zarray.members().front().first == "zarr_format" || zarray.find("_NCZARR_ARRAY") ||
         zarray.find("_nczarr_array") || zattrs.find("_nczarr_array") ||
         zattrs.find("_NCZARR_ARRAY") || zattrs.find("_ARRAY_DIMENSIONS");
}

}  // namespace

ArrayMetadata parse_array_v2(std::string_view zarray, std::string_view zattrs) {
  const JsonObject json(Json::parse(zarray, ".zarray"));
  check_format(json);
  ArrayMetadata metadata;
  metadata.zarr_format = 2;
  metadata.shape = shape_from_json(json.at("shape"), 0);
  metadata.chunk_shape = chunk_shape_from_json(json.at("chunks"), metadata.shape);
  const Json dtype = json.at("dtype");
  const NumpyType type =
      is_object_string(dtype) ? object_type(json, dtype) : dtype_from_json_v2(dtype);
  metadata.dtype = type.dtype;
  check_chunk_size(metadata.chunk_shape, metadata.dtype, ".zarray");
  metadata.chunk_keys = {false, '.'};
  if (const std::optional<Json> separator = json.find("dimension_separator")) {
    if (!separator->is_null()) metadata.chunk_keys.separator = separator_from_json(*separator);
  }
  metadata.codecs = lower_v2_codecs(json, metadata.dtype, type.order, metadata.ndim());
  const Json fill_value = json.at("fill_value");
  metadata.fill_value = fill_value_from_json(metadata.dtype, fill_value);
  metadata.fill_value_json = fill_value.text();
  metadata.attributes = attributes_text(zattrs);
  metadata.dimension_names = dimension_names(metadata.attributes, metadata.ndim());
  const bool shuffles =
      std::ranges::find(metadata.codecs, "shuffle", plain_id) != metadata.codecs.end();
  if (shuffles && is_of_netcdf(json, metadata.attributes)) {
    name_shuffled_size(metadata.codecs, metadata.dtype.itemsize());
  }
  metadata.document = zarray;
  return metadata;
}

GroupMetadata parse_group_v2(std::string_view zgroup, std::string_view zattrs) {
  const JsonObject json(Json::parse(zgroup, ".zgroup"));
  check_format(json);
  GroupMetadata metadata;
  metadata.zarr_format = 2;
  metadata.attributes = attributes_text(zattrs);
  metadata.document = zgroup;
  return metadata;
}

std::map<std::string, V2Node> parse_consolidated_v2(std::string_view zmetadata) {
  const JsonObject json(Json::parse(zmetadata, ".zmetadata"));
  if (const std::optional<Json> format = json.find("zarr_consolidated_format")) {
    if (format->integer() != 1) {
      format->fail(ErrorCode::unsupported, "expected 1, found " + std::string(format->text()));
    }
  }
  std::map<std::string, V2Node> nodes;
  for (const auto& [key, value] : json.at("metadata").members()) {
    const std::size_t slash = key.rfind('/');
    const std::string path = slash == std::string::npos ? "" : key.substr(0, slash);
    const std::string name = slash == std::string::npos ? key : key.substr(slash + 1);
    std::string V2Node::*text = name == ".zarray"   ? &V2Node::zarray
                                : name == ".zgroup" ? &V2Node::zgroup
                                : name == ".zattrs" ? &V2Node::zattrs
                                                    : nullptr;
    if (text == nullptr) continue;  // NCZarr has keys of its own
    if (slash != std::string::npos) check_node_path(path, value);
    if (!value.is_object()) value.fail(ErrorCode::corrupt, "expected an object");
    std::string& stored = nodes[path].*text;
    if (!stored.empty()) value.fail(ErrorCode::corrupt, "occurs twice");
    stored = value.text();
  }
  return nodes;
}

}  // namespace headrace
