#pragma once

// What src/cuda decides without a driver.

#include <cstddef>
#include <string>
#include <string_view>

namespace headrace {

// 8.9 is {8, 9}.
struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

// Warps as kernels see them came with 7.0, and CUDA 13 compiles for 7.5 on.
inline constexpr ComputeCapability kLeastCapability{7, 5};

// Why a GPU cannot run code that was built for `architectures`, as CMAKE_CUDA_ARCHITECTURES has
// them: "80-real;90a;120". Empty when it can, or when only the driver can tell ("native").
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility
std::string why_no_code(ComputeCapability gpu, std::string_view architectures);

// How much free pinned memory a process keeps for the next reads: as much as the readers of the
// devices that it uses have at once, but no large part of the host's memory, of which it takes away
// what others could have.
std::size_t pinned_kept_nbytes(std::size_t devices_in_use, std::size_t host_nbytes);

}  // namespace headrace
