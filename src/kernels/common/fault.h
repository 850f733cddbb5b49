#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

SIMT_DEVICE void raise(u32* faults, u32 chunk, Fault fault) {
  simt::atomic_compare_exchange(faults + chunk, 0, static_cast<u32>(fault));
}

}  // namespace headrace::SIMT_SPACE
