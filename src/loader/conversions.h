#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "headrace/dtype.h"
#include "kernels/kernels.h"

namespace headrace::loader {

// Elements one after another, so many bytes apart.
struct ConvertedRow {
  const std::uint8_t* from;
  std::uint8_t* to;
  std::int64_t count;
  std::int64_t from_step, to_step;
  double mean, std, nan_fill;  // nan_fill: NaN to keep them
};

using ConvertRow = void (*)(const ConvertedRow&);

// Nothing for what is no number.
std::optional<Number> number_of(const DType& dtype);

// For the processor at hand.
ConvertRow row_conversion(Number from, Number to);

}  // namespace headrace::loader
