#pragma once

#include "loader/plan.h"

namespace headrace::loader {

// Of the order of an epoch. Samples of several sources lie as if these were one after the other.
ShuffleQuality measure_quality(const Plan& plan, std::int64_t epoch);

}  // namespace headrace::loader
