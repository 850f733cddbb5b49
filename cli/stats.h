#pragma once

#include "cli/output.h"
#include "headrace/array.h"

namespace headrace::cli {

// Count, NaNs, least, greatest, mean and standard deviation (of the population) of a selection,
// read in parts of bounded size. NaNs count in nothing else.
Json selection_stats(const Array& array, const std::vector<SelectionItem>& items);

}  // namespace headrace::cli
