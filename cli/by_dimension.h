#pragma once

// What options say by the names of dimensions, or by their numbers: "time=10,1=100".

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/array.h"

namespace headrace::cli {

// Whether a text says so, and not by position: "10,100".
bool is_by_dimension(std::string_view text);

struct DimensionValue {
  std::size_t axis = 0;
  std::string text;
};

// A usage error of `option` for a dimension that the array has not, or that is named twice.
std::vector<DimensionValue> by_dimension(const char* option,
                                         std::string_view text,
                                         const Array& array);

std::int64_t parse_integer(const char* option, std::string_view text);

// Of --selection, by position as parse_selection() has it, or by dimension: those that are not
// named are whole.
std::vector<SelectionItem> selection_of(const Array& array, const std::string& text);

}  // namespace headrace::cli
