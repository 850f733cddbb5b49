#pragma once

#include <vector>

#include "kernels/common/fault.h"

namespace headrace::SIMT_SPACE {

struct FrameFault {
  u32 chunk;
  Fault fault;
};

// What the host found wrong.
void raise_faults(Queue& queue, const std::vector<FrameFault>& list, u32* faults);

}  // namespace headrace::SIMT_SPACE
