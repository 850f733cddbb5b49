#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Kernels::blosc.
void blosc_decode(Queue& queue, const DecodeBatch& batch);

}  // namespace headrace::SIMT_SPACE
