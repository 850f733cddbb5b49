#pragma once

#include <span>

#include "kernels/kernels.h"
#include "kernels/ragged/chunk.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// The elements of chunks that have segments, as far as the guess of segments.cpp holds; `progress`
// of each chunk says how far. `there` is `chunks` in device memory.
void find_by_segments(Queue& queue,
                      std::span<const RaggedChunk> chunks,
                      const RaggedChunk* there,
                      const RaggedFormat& format,
                      u32* faults,
                      RaggedProgress* progress);

}  // namespace headrace::SIMT_SPACE
