#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Kernels::zstd_encode: see frames.cpp for the stages.
void zstd_encode(Queue& queue, const EncodeBatch& batch, const ZstdFormat& format);

}  // namespace headrace::SIMT_SPACE
