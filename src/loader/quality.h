#pragma once

#include "loader/order.h"

namespace headrace::loader {

// Of an order of the samples of `space`.
ShuffleQuality measure_quality(const Order& order, const SampleSpace& space);

}  // namespace headrace::loader
