#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/base64.h"
#include "base/bytes.h"
#include "format/json.h"
#include "format/metadata.h"
#include "format/small_float.h"
#include "headrace/rechunk.h"

namespace headrace {
namespace {

constexpr const char* kDimensions = "_ARRAY_DIMENSIONS";
constexpr const char* kFillValue = "_FillValue";

bool names_dimensions(const Json& attributes, std::size_t ndim) {
  const std::optional<Json> names = attributes.find(kDimensions);
  if (!names || !names->is_array()) return false;
  const std::vector<Json> items = names->items();
  return items.size() == ndim &&
         std::all_of(items.begin(), items.end(), [](const Json& item) { return item.is_string(); });
}

// xarray's way of writing them: the bytes of a little-endian float64.
std::string quoted_double(double value) {
  std::byte bytes[sizeof value];
  store_le(bytes, std::bit_cast<std::uint64_t>(value));
  return json_quote(base64_encode(bytes));
}

// As xarray's FillValueCoder has it; nothing for types that it takes no mark of.
std::optional<std::string> mark_of_missing(const Array& array) {
  const std::optional<std::vector<std::byte>> fill_value = array.fill_value();
  if (!fill_value) return std::nullopt;
  const DType& dtype = array.dtype();
  switch (dtype.kind()) {
    case DType::Kind::boolean:
    case DType::Kind::signed_integer:
    case DType::Kind::unsigned_integer:
      return fill_value_to_json(dtype, *fill_value, 3);
    case DType::Kind::floating:
      return quoted_double(
          float_from_bits(float_layout(dtype), load_bits(fill_value->data(), dtype.itemsize())));
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string attributes_in_v3(const Array& array) {
  const std::string text = array.attributes_json();
  const Json attributes = Json::parse(text, "attributes");
  if (array.zarr_format() == 3 || !names_dimensions(attributes, array.shape().size())) return text;
  std::string kept;
  const auto add = [&](std::string_view name, std::string_view value) {
    kept += (kept.empty() ? "" : ", ") + json_quote(name) + ": " + std::string(value);
  };
  std::optional<std::string> mark = mark_of_missing(array);
  for (const auto& [name, value] : attributes.members()) {
    if (name == kDimensions || (name == kFillValue && mark)) continue;
    if (name == kFillValue && value.is_number() && array.dtype().kind() == DType::Kind::floating)
      mark = quoted_double(value.number());
    else
      add(name, value.text());
  }
  if (mark) add(kFillValue, *mark);
  return '{' + kept + '}';
}

}  // namespace headrace
