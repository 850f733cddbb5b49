#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Kernels::deflate, zlib and gzip.
void deflate_decode(Queue& queue, const DecodeBatch& batch);
void zlib_decode(Queue& queue, const DecodeBatch& batch);
void gzip_decode(Queue& queue, const DecodeBatch& batch);

}  // namespace headrace::SIMT_SPACE
