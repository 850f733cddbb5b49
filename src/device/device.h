#pragma once

#include "headrace/tensor.h"

namespace headrace {

// What "auto" means in this build.
Device best_device();

// `device` or `unsupported` when memory of `device` cannot be had in this build.
void check_device(const Device& device);

}  // namespace headrace
