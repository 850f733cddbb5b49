// What v2's codecs are in v3: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs
// numcodecs' filters of numbers take flat bytes in v2, behind what `bytes` is here, and the array
// in v3, in front of it.
#include <algorithm>
#include <optional>

#include "format/codec_specs.h"

namespace headrace {
namespace {

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
  const auto found = std::ranges::find(kFilters, plain_id(spec), &Filter::id);
  return found == std::end(kFilters) ? nullptr : &*found;
}

// Makes a type of the configuration native and gives the byte order that it had.
std::optional<ByteOrder> make_native(CodecSpec& spec, std::string_view key) {
  if (key.empty() || spec.configuration.empty()) return std::nullopt;
  const Json json = configuration_of(spec);
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

// v3 knows the codecs of v2's objects by their own names, or not at all.
void name_vlen(CodecSpec& spec) {
  const std::string id(plain_id(spec));
  if (id == "vlen-utf8" || id == "vlen-bytes") spec.name = id;
  if (id == "categorize") {
    throw Error(ErrorCode::unsupported, "codec \"categorize\" cannot be said in Zarr v3");
  }
}

// zlib's -1 is its default, 6; zstd takes 22 for what is above. Text is a level of netCDF's.
void bound_level(CodecSpec& spec) {
  const std::string_view id = plain_id(spec);
  if (id != "gzip" && id != "zstd") return;
  const Json json = configuration_of(spec);
  const std::optional<Json> level = json.find("level");
  if (!level) return;
  const std::int64_t stored = level->is_string()
                                  ? Json::parse(level->string(), spec.name + ": level").integer()
                                  : level->integer();
  const std::int64_t bounded = id == "zstd"   ? std::min<std::int64_t>(stored, 22)
                               : stored == -1 ? 6
                                              : stored;
  spec.configuration = json_compact(json_with_member(json, "level", std::to_string(bounded)));
}

std::vector<CodecSpec> with_plain_quantize(std::vector<CodecSpec> codecs) {
  std::vector<CodecSpec> plain;
  for (CodecSpec& spec : codecs) {
    plain.push_back(std::move(spec));
    CodecSpec& quantize = plain.back();
    if (plain_id(quantize) != "quantize") continue;
    const Json json = configuration_of(quantize);
    const std::optional<Json> from = json.find("dtype"), to = json.find("astype");
    if (!from || !to || !from->is_string() || !to->is_string()) continue;
    if (from->string() == to->string()) continue;
    CodecSpec astype{std::string(kNumcodecs) + "astype",
                     "{\"encode_dtype\":" + std::string(to->text()) +
                         ",\"decode_dtype\":" + std::string(from->text()) + "}"};
    quantize.configuration =
        json_compact(json_with_member(json, "astype", std::string(from->text())));
    plain.push_back(std::move(astype));
  }
  return plain;
}

// They take arrays in v3, and bytes of either order in v2.
void let_pack(std::vector<CodecSpec>& codecs) {
  const auto bytes = std::ranges::find(codecs, "bytes", &CodecSpec::name);
  if (bytes == codecs.end() || bytes + 1 == codecs.end()) return;
  const std::string_view next = plain_id(*(bytes + 1));
  if (next == "pcodec" || next == "zfpy") codecs.erase(bytes);
}

std::vector<CodecSpec> with_filters_in_front(std::vector<CodecSpec> codecs) {
  const auto bytes = std::ranges::find(codecs, "bytes", &CodecSpec::name);
  if (bytes == codecs.end()) return codecs;
  ByteOrder order = stored_order(codecs);
  auto end = bytes + 1;
  for (; end != codecs.end(); ++end) {
    const Filter* const filter = find_filter(*end);
    if (!filter) break;
    end->name = std::string(kNumcodecs) + std::string(filter->id);
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

}  // namespace

std::vector<CodecSpec> lower_to_v3(std::vector<CodecSpec> codecs) {
  codecs = with_filters_in_front(with_plain_quantize(std::move(codecs)));
  let_pack(codecs);
  for (CodecSpec& spec : codecs) {
    name_vlen(spec);
    bound_level(spec);
  }
  return codecs;
}

}  // namespace headrace
