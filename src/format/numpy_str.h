#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/dtype.h"

namespace headrace {

enum class ByteOrder : std::uint8_t { none, little, big };  // none: single bytes

constexpr ByteOrder native_order() {
  return std::endian::native == std::endian::big ? ByteOrder::big : ByteOrder::little;
}

struct NumpyType {
  DType dtype;
  ByteOrder order = ByteOrder::none;
};

// A type string of NumPy's array interface, "<f4", ">M8[25s]", "|S10", as Zarr v2 stores it.
// `invalid_argument` for what is none, `unsupported` for objects and types without a Zarr meaning.
// https://numpy.org/doc/stable/reference/arrays.interface.html
NumpyType parse_numpy_str(std::string_view text);

// The reverse; the order counts only where the type has one.
std::string to_numpy_str(const DType& dtype, ByteOrder order);

// NumPy's name of a time unit ("\u03bcs" is "us"), empty when there is no such unit.
std::string canonical_time_unit(std::string_view unit);

}  // namespace headrace
