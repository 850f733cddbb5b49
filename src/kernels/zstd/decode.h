#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Any zstd frames without a dictionary (RFC 8878): see decode.cpp for the stages.
void decode_zstd(Queue& queue, const DecodeBatch& batch);

}  // namespace headrace::SIMT_SPACE
