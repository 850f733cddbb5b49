#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "format/json.h"
#include "headrace/dtype.h"

namespace headrace {

// As fill_value_from_json of metadata.h, for a part of a document: messages name the field. Reads
// the dialects of both formats.
std::optional<std::vector<std::byte>> fill_value_from_json(const DType& dtype, const Json& json);

// An element of a fixed size that is missing where metadata of v2 name no fill value: zero, or NaT,
// as zarr-python reads it.
std::vector<std::byte> element_without_fill(const DType& dtype);

}  // namespace headrace
