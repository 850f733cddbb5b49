#pragma once

#include <optional>

#include "headrace/dlpack.h"
#include "headrace/dtype.h"
#include "headrace/tensor.h"

namespace headrace {

// DLPack's code for a type in native byte order; nothing when it has none. The 2-, 4- and 6-bit
// types have none here: DLPack takes them as packed unless a flag of version 1.1 says otherwise,
// and a consumer that does not know the flag would misread our one byte an element.
std::optional<DLDataType> dl_dtype(const DType& dtype);

DLDevice dl_device(const Device& device);

}  // namespace headrace
