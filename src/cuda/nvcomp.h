#pragma once

// nvCOMP where the user has installed it: never needed, and used only when asked for by name. Its
// batched low-level interface of version 6 is opened by dlopen.
// https://docs.nvidia.com/cuda/nvcomp/

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/kernels.h"

namespace headrace {

// All null where nvcomp_why_not() says why. Unlike headrace's own decoders these are not made for
// hostile bytes: nvCOMP leaves open what corrupt zstd does.
const Kernels& nvcomp_kernels();
// Looks for the library, once: HEADRACE_NVCOMP (a file), the loader's libnvcomp.so.6, and the wheel
// nvidia-libnvcomp beside this module.
std::string nvcomp_why_not();

// What nvCOMP says of one chunk, in device memory.
struct NvcompResult {
  const std::int32_t* statuses;
  const std::uint64_t* found_nbytes;
  const std::uint64_t* wanted_nbytes;
};
// As faults of the frames' chunks. `chunks`: their numbers, in device memory.
void raise_nvcomp_faults(Queue& queue,
                         const NvcompResult& result,
                         const std::uint32_t* chunks,
                         std::size_t count,
                         std::uint32_t* faults);

}  // namespace headrace
