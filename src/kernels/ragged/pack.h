#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Of Kernels.
void ragged_offsets(Queue& queue, const RaggedBatch& batch);
void ragged_values(Queue& queue, const RaggedBatch& batch, u8* values, u64 nbytes);

}  // namespace headrace::SIMT_SPACE
