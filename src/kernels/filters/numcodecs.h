#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// The members of Kernels of the same names: what undoes the filters of numcodecs.
void delta(Queue& queue, const DecodeBatch& batch, const NumberConversion& filter);
void fixed_scale_offset(Queue& queue, const DecodeBatch& batch, const NumberConversion& filter);
void cast(Queue& queue, const DecodeBatch& batch, const NumberConversion& filter);
void packbits(Queue& queue, const DecodeBatch& batch);
void swap_bytes(Queue& queue, const FilterBatch& batch);

}  // namespace headrace::SIMT_SPACE
