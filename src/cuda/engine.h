#pragma once

// The decompression engine of a CUDA device (device/decompress_engine.h), as a library of decoders.

#include <string>

#include "kernels/kernels.h"

namespace headrace {

// All null where engine_why_not() says why.
const Kernels& engine_kernels();
// Of the first device that has one: the driver lacks the call, or no chip has it.
std::string engine_why_not();

// Whether memory of the device has to be allocated for it.
bool has_engine(int device);

// RaiseSizes.
void raise_engine_sizes(Queue& queue,
                        const std::uint32_t* found,
                        const std::uint32_t* wanted,
                        const std::uint32_t* chunks,
                        std::size_t count,
                        std::uint32_t* faults);

}  // namespace headrace
