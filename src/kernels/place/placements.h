#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// What one kernel's part of a placement may have; larger ones are taken apart.
struct PlaceLimits {
  u64 units = u64{1} << 31;  // numbers that are divided have 31 bits
  u64 item = u64{1} << 30;   // bytes
};

// Throws `unsupported` for more than kMaxAxes axes.
void place_within(Queue& queue, const PlaceBatch& batch, const PlaceLimits& limits);

// Kernels::place.
inline void place(Queue& queue, const PlaceBatch& batch) { place_within(queue, batch, {}); }

}  // namespace headrace::SIMT_SPACE
