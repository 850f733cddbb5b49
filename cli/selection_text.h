#pragma once

#include <string_view>
#include <vector>

#include "headrace/selection.h"

namespace headrace::cli {

// A selection as NumPy writes it between its brackets: "0:2,:,5", "...,::-1", "None,3". Integers,
// slices, "..." and "None" (or "newaxis"); "" is everything. Throws invalid_argument that names the
// item which is none of these.
std::vector<SelectionItem> parse_selection(std::string_view text);

}  // namespace headrace::cli
