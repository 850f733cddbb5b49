#pragma once

#include <memory>

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Any zstd frames without a dictionary (RFC 8878): see decode.cpp for the stages.
void decode_zstd(Queue& queue, const DecodeBatch& batch);
std::unique_ptr<const Headers> read_zstd_headers(const u8* source,
                                                 u64 source_nbytes,
                                                 u64 target_nbytes);

}  // namespace headrace::SIMT_SPACE
