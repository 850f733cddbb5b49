// https://zarr-specs.readthedocs.io/en/latest/v3/data-types
// https://github.com/zarr-developers/zarr-extensions/tree/main/data-types
// https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#data-type-encoding
#include "format/dtype_json.h"

#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/limits.h"

namespace headrace {
namespace {

// What a constructor of DType refuses is the document's fault here.
template <typename Make>
DType make_dtype(const Json& json, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    const bool known = error.code() == ErrorCode::unsupported;
    json.fail(known ? ErrorCode::unsupported : ErrorCode::corrupt, error.what());
  }
}

std::size_t length_member(const Json& configuration, const char* key) {
  const Json json = configuration.at(key);
  const std::int64_t length = json.integer();
  if (length < 0) json.fail(ErrorCode::corrupt, "a negative length");
  if (length == 0) json.fail(ErrorCode::unsupported, "items of no bytes");
  return static_cast<std::size_t>(length);
}

DType time_type(const Json& configuration, bool is_datetime) {
  const std::string unit = configuration.at("unit").string();
  const std::int64_t scale = configuration.at("scale_factor").integer();
  return make_dtype(configuration, [&] {
    const auto scale32 = checked_cast<std::int32_t>(scale, "scale_factor");
    return is_datetime ? DType::datetime(unit, scale32) : DType::timedelta(unit, scale32);
  });
}

void check_field_count(const Json& fields, std::size_t count) {
  if (count == 0) fields.fail(ErrorCode::corrupt, "no fields");
  if (count > kMaxFields) {
    fields.fail(ErrorCode::unsupported,
                std::to_string(count) + " fields, the limit is " + std::to_string(kMaxFields));
  }
}

// NumPy's name of a field that has none, which may be padding: "f1" for the second.
std::string field_name(const Json& json, std::size_t position) {
  std::string name = json.string();
  return name.empty() ? "f" + std::to_string(position) : name;
}

DType structure_v3(const Json& fields, ByteOrder order, int depth);

DType type_v3(const Json& json, ByteOrder order, int depth) {
  const bool bare = json.is_string();
  const std::string name = bare ? json.string() : json.at("name").string();
  std::optional<Json> configuration;
  if (!bare) {
    configuration = json.find("configuration");
    for (const auto& [key, value] : json.members()) {
      if (key == "name" || key == "configuration" || key == "must_understand") continue;
      value.fail(ErrorCode::unsupported, "an unknown field");
    }
  }
  const auto needed = [&]() -> const Json& {
    if (!configuration) json.fail(ErrorCode::corrupt, "\"" + name + "\" lacks a configuration");
    return *configuration;
  };
  if (name == "numpy.datetime64") return time_type(needed(), true);
  if (name == "numpy.timedelta64") return time_type(needed(), false);
  if (name == "null_terminated_bytes") {
    const std::size_t length = length_member(needed(), "length_bytes");
    return make_dtype(json, [&] { return DType::fixed_bytes(length); });
  }
  if (name == "raw_bytes") {  // zarr-python's name of r<N>
    const std::size_t length = length_member(needed(), "length_bytes");
    return make_dtype(json, [&] { return DType::raw(length); });
  }
  if (name == "fixed_length_utf32") {
    const std::size_t length = length_member(needed(), "length_bytes");
    if (length % 4 != 0) json.fail(ErrorCode::corrupt, "length_bytes is no multiple of 4");
    return make_dtype(json, [&] { return DType::fixed_utf32(length / 4); });
  }
  if (name == "struct" || name == "structured") {
    return structure_v3(needed().at("fields"), order, depth + 1);
  }
  if (configuration && !configuration->members().empty()) {
    configuration->fail(ErrorCode::unsupported, "\"" + name + "\" is not known to take one");
  }
  try {
    return DType::from_name(name);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) json.fail(error.code(), error.what());
    json.fail(ErrorCode::unsupported, "data type \"" + name.substr(0, 80) + "\" is not known");
  }
}

// {"name", "data_type"} of "struct", or [name, data_type] of "structured". Packed, in order.
DType structure_v3(const Json& fields, ByteOrder order, int depth) {
  if (depth > kMaxFieldNesting) fields.fail(ErrorCode::unsupported, "structures nested too deep");
  std::vector<StructField> out;
  std::size_t offset = 0;
  const std::vector<Json> items = fields.items(kMaxFields, "fields");
  check_field_count(fields, items.size());
  for (const Json& item : items) {
    StructField field;
    if (item.is_array()) {
      const std::vector<Json> pair = item.items();
      if (pair.size() != 2) item.fail(ErrorCode::corrupt, "expected [name, data_type]");
      field.name = field_name(pair[0], out.size());
      field.dtype = type_v3(pair[1], order, depth);
    } else {
      field.name = field_name(item.at("name"), out.size());
      field.dtype = type_v3(item.at("data_type"), order, depth);
    }
    field.offset_bytes = offset;
    field.big_endian = order == ByteOrder::big && field.dtype.swap_size() > 1;
    if (field.dtype.variable_length()) item.fail(ErrorCode::corrupt, "a field of no fixed size");
    offset += field.dtype.itemsize();
    out.push_back(std::move(field));
  }
  return make_dtype(fields, [&] { return DType::structure(std::move(out), offset); });
}

NumpyType type_v2(const Json& json, int depth);

DType structure_v2(const Json& fields, int depth) {
  if (depth > kMaxFieldNesting) fields.fail(ErrorCode::unsupported, "structures nested too deep");
  std::vector<StructField> out;
  std::size_t offset = 0;
  const std::vector<Json> items = fields.items(kMaxFields, "fields");
  check_field_count(fields, items.size());
  for (const Json& item : items) {
    const std::vector<Json> parts = item.items();
    if (parts.size() != 2 && parts.size() != 3) {
      item.fail(ErrorCode::corrupt, "expected [name, type] or [name, type, shape]");
    }
    StructField field;
    field.name = field_name(parts[0], out.size());
    const NumpyType type = type_v2(parts[1], depth);
    field.dtype = type.dtype;
    field.big_endian = type.order == ByteOrder::big;
    field.offset_bytes = offset;
    if (parts.size() == 3) {
      // NumPy writes a sub-array of one dimension as a list or as a number.
      if (parts[2].is_number()) {
        field.shape.push_back(parts[2].integer());
      } else {
        for (const Json& extent : parts[2].items()) field.shape.push_back(extent.integer());
      }
      for (std::int64_t extent : field.shape) {
        if (extent < 0) parts[2].fail(ErrorCode::corrupt, "a negative extent");
      }
    }
    make_dtype(item, [&] {
      offset = checked_add(
          offset, checked_nbytes(field.shape, field.dtype.itemsize(), "field"), "structure");
      return field.dtype;
    });
    out.push_back(std::move(field));
  }
  return make_dtype(fields, [&] { return DType::structure(std::move(out), offset); });
}

NumpyType type_v2(const Json& json, int depth) {
  if (json.is_array()) return {structure_v2(json, depth + 1), ByteOrder::none};
  const std::string text = json.string();
  NumpyType type;
  type.dtype = make_dtype(json, [&] {
    const bool bare_name = text.rfind("float", 0) == 0 || text.rfind("bfloat", 0) == 0 ||
                           text.rfind("int", 0) == 0 || text.rfind("uint", 0) == 0;
    type = bare_name ? NumpyType{DType::from_name(text), ByteOrder::none} : parse_numpy_str(text);
    return type.dtype;
  });
  if (type.order == ByteOrder::none && type.dtype.swap_size() > 1) type.order = ByteOrder::little;
  return type;
}

bool has_name_only(const DType& dtype) {
  const std::string name = dtype.name();
  return dtype.kind() == DType::Kind::ml_floating || name == "int2" || name == "int4" ||
         name == "uint2" || name == "uint4";
}

std::string named(const char* name, const std::string& configuration) {
  return "{\"name\":\"" + std::string(name) + "\",\"configuration\":{" + configuration + "}}";
}

}  // namespace

DType dtype_from_json_v3(const Json& json, ByteOrder order) { return type_v3(json, order, 0); }

std::string dtype_to_json_v3(const DType& dtype) {
  const std::string length = "\"length_bytes\":" + std::to_string(dtype.itemsize());
  switch (dtype.kind()) {
    case DType::Kind::datetime:
    case DType::Kind::timedelta:
      return named(dtype.name().c_str(),
                   "\"unit\":\"" + dtype.unit() +
                       "\",\"scale_factor\":" + std::to_string(dtype.unit_scale()));
    case DType::Kind::fixed_bytes:
    case DType::Kind::fixed_utf32:
      return named(dtype.name().c_str(), length);
    case DType::Kind::raw:
      return named("raw_bytes", length);  // zarr-python does not read r<N>
    case DType::Kind::structure: {
      // The older form: zarr-python before 3.2 reads no other.
      std::string fields;
      std::size_t offset = 0;
      for (const StructField& field : dtype.fields()) {
        if (!field.shape.empty() || field.offset_bytes != offset) {
          throw Error(ErrorCode::unsupported,
                      "field \"" + field.name + "\": Zarr v3 has no sub-arrays and no padding");
        }
        offset += field.dtype.itemsize();
        if (!fields.empty()) fields += ",";
        fields += "[" + json_quote(field.name) + "," + dtype_to_json_v3(field.dtype) + "]";
      }
      if (offset != dtype.itemsize()) {
        throw Error(ErrorCode::unsupported, "structures in Zarr v3 have no padding");
      }
      return named("structured", "\"fields\":[" + fields + "]");
    }
    case DType::Kind::object:
    case DType::Kind::array:
      throw Error(ErrorCode::unsupported, dtype.to_string() + " cannot be said in Zarr v3");
    default:
      return json_quote(dtype.name());
  }
}

NumpyType dtype_from_json_v2(const Json& json) { return type_v2(json, 0); }

std::string dtype_to_json_v2(const DType& dtype, ByteOrder order) {
  if (dtype.variable_length()) return "\"|O\"";
  if (has_name_only(dtype)) return json_quote(dtype.name());
  if (dtype.kind() != DType::Kind::structure) return json_quote(to_numpy_str(dtype, order));
  std::string fields;
  std::size_t offset = 0;
  for (const StructField& field : dtype.fields()) {
    if (field.offset_bytes != offset) {
      throw Error(ErrorCode::unsupported,
                  "field \"" + field.name + "\": structures in Zarr v2 have no padding");
    }
    offset += checked_nbytes(field.shape, field.dtype.itemsize(), "field");
    const ByteOrder stored = field.big_endian ? ByteOrder::big : ByteOrder::little;
    if (!fields.empty()) fields += ",";
    fields += "[" + json_quote(field.name) + "," + dtype_to_json_v2(field.dtype, stored);
    if (!field.shape.empty()) {
      std::string shape;
      for (std::int64_t extent : field.shape) {
        shape += (shape.empty() ? "" : ",") + std::to_string(extent);
      }
      fields += ",[" + shape + "]";
    }
    fields += "]";
  }
  if (offset != dtype.itemsize()) {
    throw Error(ErrorCode::unsupported, "structures in Zarr v2 have no padding");
  }
  return "[" + fields + "]";
}

}  // namespace headrace
