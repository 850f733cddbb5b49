#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// As Kernels has them.
void count_rows(Queue& queue, const RowBatch& batch, u64* counts);
void gather_rows(Queue& queue, const RowBatch& batch);
void gather_rows_dense(Queue& queue, const RowBatch& batch, u32* again);
void sum_rows_dense(Queue& queue, const RowBatch& batch, const u32* again, std::size_t count);

}  // namespace headrace::SIMT_SPACE
