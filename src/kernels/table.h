#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// The functions of this space, for those that call others.
inline const Kernels& kernels() {
#ifdef __CUDACC__
  return gpu_kernels();
#else
  return host_kernels();
#endif
}

}  // namespace headrace::SIMT_SPACE
