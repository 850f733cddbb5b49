#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace {

#ifdef __CUDACC__
const Kernels& gpu_kernels() {
#else
const Kernels& host_kernels() {
#endif
  static constexpr Kernels kKernels{};
  return kKernels;
}

}  // namespace headrace
