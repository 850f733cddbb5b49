#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Kernels::gather. Boxes of more elements than `most` (below 2^31) are taken apart.
void gather_within(Queue& queue, const GatherBatch& batch, u64 most);

inline void gather(Queue& queue, const GatherBatch& batch) {
  gather_within(queue, batch, u64{1} << 30);
}

}  // namespace headrace::SIMT_SPACE
