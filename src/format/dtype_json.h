#pragma once

#include <string>

#include "format/json.h"
#include "format/numpy_str.h"
#include "headrace/dtype.h"

namespace headrace {

// v3 "data_type": a name, or {"name", "configuration"}. `order` is that of the chain's bytes codec:
// structures keep it in their fields. `unsupported` for types that are not known.
DType dtype_from_json_v3(const Json& json, ByteOrder order);
std::string dtype_to_json_v3(const DType& dtype);

// v2 "dtype": a NumPy type string, a list of fields, or a name of ml_dtypes as tensorstore writes.
// `order` is none for structures and single bytes. Not "|O".
NumpyType dtype_from_json_v2(const Json& json);
std::string dtype_to_json_v2(const DType& dtype, ByteOrder order);

}  // namespace headrace
