#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Device memory; read by aligned words, so up to 3 bytes around it too.
struct ByteSpan {
  const u8* data;
  u64 nbytes;
};

// results[i], in device memory, becomes the checksum of spans[i], which are host memory.
void checksums(Queue& queue, Checksum kind, std::span<const ByteSpan> spans, u32* results);

// Kernels::verify.
void verify(Queue& queue, Checksum kind, bool at_start, const DecodeBatch& batch);

}  // namespace headrace::SIMT_SPACE
