// numcodecs' filters of numbers take flat bytes in v2, behind what `bytes` is here, and the array
// in v3, in front of it: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs
#include <algorithm>
#include <optional>

#include "format/codec_specs.h"

namespace headrace {
namespace {

constexpr std::string_view kPrefix = "numcodecs.";

struct Filter {
  std::string_view id;
  // Members of the configuration that say a type, where there is one.
  std::string_view decoded = {}, encoded = {};
};
constexpr Filter kFilters[] = {
    {"delta", "dtype", "astype"},
    {"fixedscaleoffset", "dtype", "astype"},
    {"quantize", "dtype", "astype"},
    {"astype", "decode_dtype", "encode_dtype"},
    {"bitround"},
    {"packbits"},
};

const Filter* find_filter(const CodecSpec& spec) {
  std::string_view id = spec.name;
  if (id.starts_with(kPrefix)) id.remove_prefix(kPrefix.size());
  const auto found = std::ranges::find(kFilters, id, &Filter::id);
  return found == std::end(kFilters) ? nullptr : &*found;
}

// Makes a type of the configuration native and gives the byte order that it had.
std::optional<ByteOrder> make_native(CodecSpec& spec, std::string_view key) {
  if (key.empty() || spec.configuration.empty()) return std::nullopt;
  const Json json = Json::parse(spec.configuration, "codec \"" + spec.name + "\"");
  const std::optional<Json> text = json.find(key);
  if (!text || !text->is_string()) return std::nullopt;
  const NumpyType type = parse_numpy_str(text->string());
  spec.configuration = json_compact(
      json_with_member(json, key, json_quote(to_numpy_str(type.dtype, native_order()))));
  return type.order;
}

[[noreturn]] void not_in_v3(const CodecSpec& spec, const std::string& problem) {
  throw Error(ErrorCode::unsupported,
              "codec \"" + spec.name + "\" " + problem + ", which Zarr v3 has no place for");
}

}  // namespace

std::vector<CodecSpec> with_filters_in_front(std::vector<CodecSpec> codecs) {
  const auto bytes = std::ranges::find(codecs, "bytes", &CodecSpec::name);
  if (bytes == codecs.end()) return codecs;
  ByteOrder order = stored_order(codecs);
  auto end = bytes + 1;
  for (; end != codecs.end(); ++end) {
    const Filter* const filter = find_filter(*end);
    if (!filter) break;
    end->name = std::string(kPrefix) + std::string(filter->id);
    const auto decoded = make_native(*end, filter->decoded);
    if (decoded && *decoded != ByteOrder::none && *decoded != order) {
      not_in_v3(*end, "takes its elements in another byte order than they are stored in");
    }
    const auto encoded = make_native(*end, filter->encoded);
    order = filter->id == "packbits" ? ByteOrder::none : encoded.value_or(decoded.value_or(order));
  }
  const auto left = std::find_if(end, codecs.end(), find_filter);
  if (left != codecs.end()) not_in_v3(*left, "comes after \"" + end->name + "\"");
  if (end == bytes + 1) return codecs;
  std::rotate(bytes, bytes + 1, end);
  // zarr-python gives filters what `bytes` made as it lies there, so big-endian would be misread.
  *(end - 1) = {"bytes", order == ByteOrder::none ? "" : R"({"endian":"little"})"};
  return codecs;
}

}  // namespace headrace
