#pragma once

#include <string>

namespace headrace {

// Why a CUDA device that exists cannot run the kernels of this build; empty when it can. Asks the
// driver once for each device, which makes a context there.
std::string why_no_kernels(int device);

}  // namespace headrace
