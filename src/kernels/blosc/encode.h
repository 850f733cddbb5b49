#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Kernels::blosc_encode.
void blosc_encode(Queue& queue, const EncodeBatch& batch, const BloscFormat& format);

}  // namespace headrace::SIMT_SPACE
