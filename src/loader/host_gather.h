#pragma once

#include "kernels/kernels.h"

namespace headrace::loader {

// By the threads of the pool; bit for bit what Kernels::gather does, but for the payload of NaNs.
void gather_on_host(const GatherBatch& batch);
// The same without a conversion, of elements of any size.
void copy_on_host(std::span<const GatherBox> boxes, unsigned axes, std::size_t itemsize);

}  // namespace headrace::loader
