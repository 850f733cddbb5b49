#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Kernels::lz4 and so on.
void lz4_decode(Queue&, const DecodeBatch&);
void snappy_decode(Queue&, const DecodeBatch&);
void blosclz_decode(Queue&, const DecodeBatch&);

}  // namespace headrace::SIMT_SPACE
