#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Kernels::lz4_encode. A target of lz4_bound(n) bytes is large enough.
void lz4_encode(Queue& queue, const EncodeBatch& batch);

constexpr u64 lz4_bound(u64 nbytes) { return nbytes + nbytes / 255 + 16; }

}  // namespace headrace::SIMT_SPACE
