#pragma once

#include <memory>

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Kernels::blosc.
void blosc_decode(Queue& queue, const DecodeBatch& batch);
std::unique_ptr<const Headers> read_blosc_headers(const u8* source,
                                                  u64 source_nbytes,
                                                  u64 target_nbytes);

}  // namespace headrace::SIMT_SPACE
