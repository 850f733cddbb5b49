// Metadata documents are hostile bytes: whatever they hold, parsing gives a model or an Error. What
// was read as an array is written and read again, and must be the same.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "format/json.h"
#include "format/metadata.h"
#include "headrace/error.h"

namespace {

using namespace headrace;

void require(bool ok) {
  if (!ok) std::abort();
}

template <typename Call>
void attempt(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    require(error.what()[0] != '\0');
  }
}

// Chains and types that a format cannot say are refused; all else must survive.
void check_round_trip(const ArrayMetadata& metadata) {
  std::string written;
  try {
    written = metadata.zarr_format == 3 ? write_array_v3(metadata) : write_array_v2(metadata);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::unsupported || error.code() == ErrorCode::invalid_argument ||
            error.code() == ErrorCode::corrupt);
    return;
  }
  const ArrayMetadata again = metadata.zarr_format == 3
                                  ? parse_array_v3(written)
                                  : parse_array_v2(written, metadata.attributes);
  require(again.shape == metadata.shape && again.chunk_shape == metadata.chunk_shape);
  require(again.dtype == metadata.dtype);
  require(again.dimension_names == metadata.dimension_names);
  const std::string resized = with_shape(metadata.document, metadata.shape);
  const ArrayMetadata same = metadata.zarr_format == 3
                                 ? parse_array_v3(resized)
                                 : parse_array_v2(resized, metadata.attributes);
  require(same.shape == metadata.shape && same.dtype == metadata.dtype);
  require(same.codecs == metadata.codecs && same.fill_value == metadata.fill_value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  attempt([&] {
    const Json json = Json::parse(text, "fuzz");
    const std::string compact = json.compact();
    require(Json::parse(compact, "fuzz").compact() == compact);
    require(json_compact(json_pretty(compact)) == compact);
  });
  attempt([&] { check_round_trip(parse_array_v3(text)); });
  attempt([&] { check_round_trip(parse_array_v2(text, "")); });
  attempt([&] { parse_group_v3(text); });
  attempt([&] { parse_group_v2("{\"zarr_format\": 2}", text); });
  attempt([&] { v3_node_type(text); });
  attempt([&] { parse_sharding({"sharding_indexed", std::string(text)}); });
  attempt([&] {
    const auto nodes = parse_consolidated_v2(text);
    require(parse_consolidated_v2(write_consolidated_v2(nodes)).size() == nodes.size());
  });
  return 0;
}
