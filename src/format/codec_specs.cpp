// https://zarr-specs.readthedocs.io/en/latest/v3/codecs
#include "format/codec_specs.h"

#include <algorithm>
#include <numeric>

#include "base/limits.h"
#include "format/metadata.h"

namespace headrace {
namespace {

bool is_sharding(const CodecSpec& spec) { return spec.name == "sharding_indexed"; }

// zarrita and pizzarr write drafts of v3.
CodecSpec without_draft(CodecSpec spec, std::size_t ndim) {
  if (spec.name == "endian") spec.name = "bytes";
  if (spec.name != "transpose" || spec.configuration.empty()) return spec;
  const Json configuration = configuration_of(spec);
  const std::optional<Json> order = configuration.find("order");
  if (!order || !order->is_string()) return spec;
  const std::string text = order->string();
  if (text != "C" && text != "F") {
    order->fail(ErrorCode::corrupt, "expected a permutation, \"C\" or \"F\"");
  }
  Shape axes(ndim);
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  if (text == "F") std::ranges::reverse(axes);
  spec.configuration = json_compact(json_with_member(configuration, "order", shape_to_json(axes)));
  return spec;
}

}  // namespace

std::string_view plain_id(const CodecSpec& spec) {
  std::string_view id = spec.name;
  if (id.starts_with(kNumcodecs)) id.remove_prefix(kNumcodecs.size());
  return id;
}

Json configuration_of(const CodecSpec& spec) {
  return Json::parse(spec.configuration.empty() ? "{}" : std::string_view(spec.configuration),
                     "codec \"" + spec.name + "\"");
}

Shape shape_from_json(const Json& list, std::int64_t minimum) {
  Shape shape;
  for (const Json& item : list.items(kMaxDimensions, "dimensions")) {
    const std::int64_t extent = item.integer();
    if (extent < minimum) {
      item.fail(
          ErrorCode::corrupt,
          "expected at least " + std::to_string(minimum) + ", found " + std::to_string(extent));
    }
    shape.push_back(extent);
  }
  return shape;
}

std::string shape_to_json(const Shape& shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) {
    text += (d == 0 ? "" : ",") + std::to_string(shape[d]);
  }
  return text + "]";
}

std::vector<CodecSpec> codecs_from_json(const Json& list, std::size_t ndim) {
  std::vector<CodecSpec> codecs;
  const std::vector<Json> items = list.items(kMaxCodecs, "codecs");
  if (items.empty()) list.fail(ErrorCode::corrupt, "no codecs");
  for (const Json& item : items) {
    CodecSpec spec;
    if (item.is_string()) {
      spec.name = item.string();
    } else {
      spec.name = item.at("name").string();
      for (const auto& [key, value] : item.members()) {
        if (key == "name" || key == "must_understand") continue;
        if (key != "configuration") value.fail(ErrorCode::unsupported, "an unknown field");
      }
      if (const std::optional<Json> configuration = item.find("configuration")) {
        if (!configuration->members().empty()) spec.configuration = configuration->compact();
      }
    }
    if (spec.name.empty()) item.fail(ErrorCode::corrupt, "a codec without a name");
    codecs.push_back(without_draft(std::move(spec), ndim));
  }
  return codecs;
}

std::string codecs_to_json(const std::vector<CodecSpec>& codecs) {
  std::string text = "[";
  for (const CodecSpec& spec : codecs) {
    if (text.size() > 1) text += ",";
    text += "{\"name\":" + json_quote(spec.name);
    if (!spec.configuration.empty()) {
      text +=
          ",\"configuration\":" + checked_json_object(spec.configuration, "codec configuration");
    } else if (spec.name.starts_with(kNumcodecs)) {
      text += ",\"configuration\":{}";  // zarr-python wants one in these
    }
    text += "}";
  }
  return text + "]";
}

ByteOrder stored_order(const std::vector<CodecSpec>& codecs) {
  for (const CodecSpec& spec : codecs) {
    if (spec.name == "bytes") {
      const std::optional<Json> endian = configuration_of(spec).find("endian");
      return endian && endian->is_string() && endian->string() == "big" ? ByteOrder::big
                                                                        : ByteOrder::little;
    }
    if (is_sharding(spec)) return stored_order(parse_sharding(spec).codecs);
  }
  return ByteOrder::little;
}

ShardingConfig parse_sharding(const CodecSpec& spec) {
  const Json json = configuration_of(spec);
  for (const auto& [key, value] : json.members()) {
    if (key != "chunk_shape" && key != "codecs" && key != "index_codecs" &&
        key != "index_location") {
      value.fail(ErrorCode::unsupported, "an unknown field");
    }
  }
  ShardingConfig config;
  config.chunk_shape = shape_from_json(json.at("chunk_shape"), 1);
  const std::size_t ndim = config.chunk_shape.size();
  config.codecs = codecs_from_json(json.at("codecs"), ndim);
  config.index_codecs = codecs_from_json(json.at("index_codecs"), ndim + 1);
  if (const std::optional<Json> location = json.find("index_location")) {
    const std::string text = location->string();
    if (text != "start" && text != "end") {
      location->fail(ErrorCode::corrupt, "expected \"start\" or \"end\"");
    }
    config.index_at_end = text == "end";
  }
  return config;
}

void check_sharding(const std::vector<CodecSpec>& codecs, const Shape& chunk_shape, int depth) {
  Shape shape = chunk_shape;
  for (const CodecSpec& spec : codecs) {
    if (spec.name == "transpose") {
      Shape permuted;
      const Json configuration = configuration_of(spec);
      for (const Json& axis : configuration.at("order").items(kMaxDimensions, "dimensions")) {
        const std::int64_t d = axis.integer();
        if (d < 0 || d >= static_cast<std::int64_t>(shape.size())) {
          axis.fail(ErrorCode::corrupt, "no such dimension");
        }
        permuted.push_back(shape[static_cast<std::size_t>(d)]);
      }
      if (permuted.size() != shape.size()) {
        throw Error(ErrorCode::corrupt,
                    "codec \"transpose\": order has " + std::to_string(permuted.size()) +
                        " dimensions, expected " + std::to_string(shape.size()));
      }
      shape = permuted;
    } else if (is_sharding(spec)) {
      if (depth >= kMaxShardNesting) {
        throw Error(ErrorCode::unsupported, "codec \"sharding_indexed\": nested too deep");
      }
      const ShardingConfig config = parse_sharding(spec);
      bool divides = config.chunk_shape.size() == shape.size();
      for (std::size_t d = 0; divides && d < shape.size(); ++d) {
        divides = shape[d] % config.chunk_shape[d] == 0;
      }
      if (!divides) {
        throw Error(ErrorCode::corrupt,
                    "codec \"sharding_indexed\": inner chunks " +
                        shape_to_json(config.chunk_shape) + " do not divide the shard " +
                        shape_to_json(shape));
      }
      return check_sharding(config.codecs, config.chunk_shape, depth + 1);
    } else if (spec.name == "reshape") {
      return;  // what comes after has another shape
    }
  }
}

std::vector<CodecSpec> with_typesize(std::vector<CodecSpec> codecs, std::size_t itemsize) {
  for (CodecSpec& spec : codecs) {
    if (spec.name == "blosc") {
      const Json json = configuration_of(spec);
      const std::optional<Json> typesize = json.find("typesize");
      if (!typesize || typesize->text() == "0") {
        // Blosc keeps it in one byte; larger items shuffle as bytes do.
        const std::size_t known = itemsize >= 1 && itemsize <= 255 ? itemsize : 1;
        spec.configuration =
            json_compact(json_with_member(json, "typesize", std::to_string(known)));
      }
    } else if (is_sharding(spec)) {
      const Json json = configuration_of(spec);
      const ShardingConfig sharding = parse_sharding(spec);
      const auto inner = with_typesize(sharding.codecs, itemsize);
      const std::string text = json_with_member(json, "codecs", codecs_to_json(inner));
      // Both lists without what drafts say.
      spec.configuration = json_compact(json_with_member(
          Json::parse(text, spec.name), "index_codecs", codecs_to_json(sharding.index_codecs)));
    }
  }
  return codecs;
}

}  // namespace headrace
