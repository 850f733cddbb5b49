// v2 codecs are numcodecs configurations: https://numcodecs.readthedocs.io
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "format/codec_specs.h"
#include "format/dtype_json.h"
#include "format/metadata.h"

namespace headrace {
namespace {

constexpr std::array<std::string_view, 4> kShuffles = {"", "noshuffle", "shuffle", "bitshuffle"};

bool is_object_filter(std::string_view id) {
  return id == "vlen-utf8" || id == "vlen-bytes" || id == "vlen-array" || id == "json2" ||
         id == "msgpack2" || id == "categorize" || id == "pickle";
}

std::vector<Json> v2_filters(const JsonObject& zarray) {
  const std::optional<Json> filters = zarray.find("filters");
  return filters && !filters->is_null() ? filters->items() : std::vector<Json>();
}

// GDAL and netCDF before 4.10 write numbers as text: "level": "4".
bool is_digits(const Json& value) {
  return value.is_string() && !value.string().empty() &&
         value.string().find_first_not_of("0123456789") == std::string::npos;
}

// Whether netCDF has a filter of this name, all of whose parameters are numbers.
bool has_numbers_alone(std::string_view id) {
  return id == "zlib" || id == "bz2" || id == "shuffle";
}

// The configuration without its "id", compact; empty when nothing is left.
std::string without_id(const Json& codec) {
  const bool has_numbers = has_numbers_alone(codec.at("id").string());
  std::string text;
  for (const auto& [key, value] : codec.members()) {
    if (key == "id") continue;
    text += (text.empty() ? "" : ",") + json_quote(key) + ":";
    text += has_numbers && is_digits(value) ? value.string() : value.compact();
  }
  return text.empty() ? "" : "{" + text + "}";
}

// A number as it stands, or the text of one: what it means only an encoder has to know.
std::string level_or(const Json& codec, std::string_view key, const char* fallback) {
  const std::optional<Json> value = codec.find(key);
  if (!value || value->is_null()) return fallback;
  return value->is_number() || is_digits(*value) ? value->compact()
                                                 : std::to_string(value->integer());
}

std::int64_t integer_or(const Json& codec, std::string_view key, std::int64_t fallback) {
  const std::optional<Json> value = codec.find(key);
  if (!value || value->is_null()) return fallback;
  return is_digits(*value) ? Json::parse(value->string(), std::string(key)).integer()
                           : value->integer();
}

// GDAL writes its own creation options into the metadata: "checksum": "NO", "shuffle": "BIT".
// https://gdal.org/en/stable/drivers/raster/zarr.html
bool checksum_from_v2(const Json& value) {
  return value.is_string() ? value.string() == "YES" : value.boolean();
}

std::int64_t shuffle_from_v2(const Json& codec) {
  const std::optional<Json> value = codec.find("shuffle");
  if (!value || !value->is_string() || is_digits(*value)) return integer_or(codec, "shuffle", 1);
  constexpr std::array<std::string_view, 3> kOfGdal = {"NONE", "BYTE", "BIT"};
  const auto found = std::ranges::find(kOfGdal, value->string());
  if (found == kOfGdal.end()) value->fail(ErrorCode::corrupt, "no such shuffle");
  return found - kOfGdal.begin();
}

// v2 counts shuffles (-1: by the item size) and leaves the type size to the buffer.
CodecSpec blosc_from_v2(const Json& codec, std::size_t itemsize) {
  const std::optional<Json> cname = codec.find("cname");
  const std::int64_t shuffle = shuffle_from_v2(codec);
  if (shuffle < -1 || shuffle > 2) {
    codec.fail(ErrorCode::corrupt,
               "shuffle " + std::to_string(shuffle) + ", expected -1, 0, 1 or 2");
  }
  const std::size_t mode = shuffle >= 0    ? static_cast<std::size_t>(shuffle) + 1
                           : itemsize == 1 ? 3
                                           : 2;
  const std::size_t typesize = itemsize >= 1 && itemsize <= 255 ? itemsize : 1;
  return {"blosc",
          "{\"typesize\":" + std::to_string(typesize) +
              ",\"cname\":" + json_quote(cname ? cname->string() : "lz4") + ",\"clevel\":" +
              level_or(codec, "clevel", "5") + ",\"shuffle\":\"" + std::string(kShuffles[mode]) +
              "\",\"blocksize\":" + std::to_string(integer_or(codec, "blocksize", 0)) + "}"};
}

CodecSpec compressor_from_v2(const Json& codec, std::size_t itemsize) {
  const std::string id = codec.at("id").string();
  if (id == "blosc") return blosc_from_v2(codec, itemsize);
  if (id == "gzip") {
    return {"gzip", "{\"level\":" + level_or(codec, "level", "1") + "}"};
  }
  if (id == "zstd") {
    const std::optional<Json> checksum = codec.find("checksum");
    return {"zstd",
            "{\"level\":" + level_or(codec, "level", "1") + ",\"checksum\":" +
                (checksum && checksum_from_v2(*checksum) ? "true" : "false") + "}"};
  }
  return {std::string(kNumcodecs) + id, without_id(codec)};
}

// Bytes an item of what a filter hands on: its "astype" or "encode_dtype" where it has one.
std::size_t itemsize_after(const Json& filter, std::size_t itemsize) {
  const std::string id = filter.at("id").string();
  if (id == "bitround") return itemsize;
  const char* keys[] = {"astype", "dtype"};
  if (id == "astype") keys[0] = "encode_dtype";
  if (id == "delta" || id == "fixedscaleoffset" || id == "quantize" || id == "astype" ||
      id == "categorize") {
    for (const char* key : keys) {
      const std::optional<Json> type = filter.find(key);
      if (!type || !type->is_string()) continue;
      try {
        return parse_numpy_str(type->string()).dtype.itemsize();
      } catch (const Error&) {
        return itemsize;  // the codec will say what is wrong with it
      }
    }
    return itemsize;
  }
  return 1;
}

bool is_compressor(std::string_view id) {
  for (std::string_view known : {"blosc",
                                 "zstd",
                                 "gzip",
                                 "zlib",
                                 "lz4",
                                 "bz2",
                                 "lzma",
                                 "snappy",
                                 "zfpy",
                                 "pcodec",
                                 "blosc2",
                                 "lzf",
                                 "isal_gzip"}) {
    if (id == known) return true;
  }
  return false;
}

[[noreturn]] void not_in_v2(const std::string& what) {
  throw Error(ErrorCode::unsupported, what + " cannot be said in Zarr v2");
}

std::string codec_to_v2(const CodecSpec& spec) {
  const std::string_view id = plain_id(spec);
  if (spec.name == "sharding_indexed") not_in_v2("codec \"sharding_indexed\"");
  const Json json = configuration_of(spec);
  std::string out = "{\"id\":" + json_quote(id);
  for (const auto& [key, value] : json.members()) {
    std::string shown = value.compact();
    if (spec.name == "blosc") {
      if (key == "typesize") continue;
      if (key == "shuffle" && value.is_string()) {
        std::size_t mode = 1;
        while (mode < kShuffles.size() && kShuffles[mode] != value.string()) ++mode;
        if (mode == kShuffles.size()) value.fail(ErrorCode::invalid_argument, "no such shuffle");
        shown = std::to_string(mode - 1);
      }
    }
    // No shuffle for both: 0 is the size of an element to netCDF-C.
    if (id == "shuffle" && key == "elementsize" && shown == "0") shown = "1";
    // numcodecs before 0.13 knows no checksum.
    if (spec.name == "zstd" && key == "checksum" && shown == "false") continue;
    out += "," + json_quote(key) + ":" + shown;
  }
  return out + "}";
}

// 'C' of an order that changes nothing, 'F' of one that reverses all dimensions.
std::optional<char> order_of(const CodecSpec& transpose, std::size_t ndim) {
  const Json json = configuration_of(transpose);
  const std::vector<Json> order = json.at("order").items();
  if (order.size() != ndim) return std::nullopt;
  bool same = true, reversed = true;
  for (std::size_t i = 0; i < ndim; ++i) {
    same &= order[i].integer() == static_cast<std::int64_t>(i);
    reversed &= order[i].integer() == static_cast<std::int64_t>(ndim - 1 - i);
  }
  if (same) return 'C';
  return reversed ? std::optional('F') : std::nullopt;
}

}  // namespace

std::optional<DType> v2_object_type(std::string_view id, const Json& configuration) {
  if (id == "vlen-utf8" || id == "categorize") return DType::string();
  if (id == "vlen-bytes") return DType::bytes();
  if (id == "json2" || id == "msgpack2") return DType::object();
  if (id == "vlen-array") return DType::array(dtype_from_json_v2(configuration.at("dtype")).dtype);
  if (id != "pickle") return std::nullopt;
  configuration.fail(ErrorCode::unsupported, "\"pickle\" runs code that the data brings along");
}

std::optional<Json> v2_object_filter(const JsonObject& zarray) {
  for (const Json& filter : v2_filters(zarray)) {
    if (is_object_filter(filter.at("id").string())) return filter;
  }
  return std::nullopt;
}

std::vector<CodecSpec> lower_v2_codecs(const JsonObject& zarray,
                                       const DType& dtype,
                                       ByteOrder byte_order,
                                       std::size_t ndim) {
  std::vector<CodecSpec> codecs;
  if (const std::optional<Json> order = zarray.find("order")) {
    const std::string text = order->string();
    if (text != "C" && text != "F") order->fail(ErrorCode::corrupt, "expected \"C\" or \"F\"");
    if (text == "F" && ndim > 1) {
      Shape reversed;
      for (std::size_t d = ndim; d-- > 0;) reversed.push_back(static_cast<std::int64_t>(d));
      codecs.push_back({"transpose", "{\"order\":" + shape_to_json(reversed) + "}"});
    }
  }
  if (!dtype.variable_length()) {
    const char* endian = byte_order == ByteOrder::big      ? "{\"endian\":\"big\"}"
                         : byte_order == ByteOrder::little ? "{\"endian\":\"little\"}"
                                                           : "";
    codecs.push_back({"bytes", endian});
  }
  std::size_t itemsize = dtype.itemsize();
  for (const Json& filter : v2_filters(zarray)) {
    const std::string id = filter.at("id").string();
    const bool in_v3 = id == "vlen-utf8" || id == "vlen-bytes";
    codecs.push_back({in_v3 ? id : std::string(kNumcodecs) + id, without_id(filter)});
    itemsize = itemsize_after(filter, itemsize);
  }
  const std::optional<Json> compressor = zarray.find("compressor");
  if (compressor && !compressor->is_null()) {
    codecs.push_back(compressor_from_v2(*compressor, itemsize));
  }
  return codecs;
}

void name_shuffled_size(std::vector<CodecSpec>& codecs, std::size_t itemsize) {
  for (CodecSpec& spec : codecs) {
    if (plain_id(spec) != "shuffle") continue;
    const Json json = configuration_of(spec);
    const std::optional<Json> size = json.find("elementsize");
    if (!size || size->text() != "0") continue;
    spec.configuration =
        json_compact(json_with_member(json, "elementsize", std::to_string(itemsize)));
  }
}

V2Codecs raise_v2_codecs(const std::vector<CodecSpec>& codecs,
                         const DType& dtype,
                         std::size_t ndim) {
  V2Codecs out;
  std::string filters;
  bool serialized = false;
  for (std::size_t i = 0; i < codecs.size(); ++i) {
    const CodecSpec& spec = codecs[i];
    const std::string_view id = plain_id(spec);
    if (id == "transpose") {
      const std::optional<char> order = order_of(spec, ndim);
      if (i != 0 || !order) not_in_v2("a transpose other than one reversal");
      out.order = *order;
    } else if (spec.name == "bytes") {
      if (dtype.swap_size() > 1) out.byte_order = stored_order({spec});
      serialized = true;
    } else if (i + 1 == codecs.size() && is_compressor(id)) {
      out.compressor = codec_to_v2(spec);
    } else {
      serialized |= is_object_filter(id);
      filters += (filters.empty() ? "" : ",") + codec_to_v2(spec);
    }
  }
  if (!serialized && dtype.variable_length()) not_in_v2("a chain without a vlen codec");
  if (dtype.swap_size() > 1 && out.byte_order == ByteOrder::none) out.byte_order = native_order();
  if (!filters.empty()) out.filters = "[" + filters + "]";
  return out;
}

}  // namespace headrace
