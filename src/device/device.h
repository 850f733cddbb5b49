#pragma once

#include "headrace/tensor.h"

namespace headrace {

// What "auto" means here: the first GPU that can be used, else the CPU.
Device best_device();
class Backend;
Device best_device(const Backend& gpus);

// `device` when memory of `device` cannot be had here, with the reason.
void check_device(const Device& device);

}  // namespace headrace
