#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Kernels::parse_ragged.
void parse_ragged(Queue& queue, const DecodeBatch& batch, const RaggedFormat& format);

}  // namespace headrace::SIMT_SPACE
