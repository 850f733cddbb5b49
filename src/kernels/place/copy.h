#pragma once

#include <span>

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// target_nbytes of each source to its target.
void copy_frames(Queue& queue, std::span<const Frame> frames);

}  // namespace headrace::SIMT_SPACE
