#pragma once

#include <cstddef>

#include "simt/queue.h"

namespace headrace {

// From pinned memory of the host, by a kernel, both aligned to 16. The driver gives a device's copy
// engine the copies of all streams in the order of the calls: behind those of a slab that are under
// way this would wait for all of them, while the kernels of its own slab wait for it.
void copy_from_host(Queue& queue, void* target, const void* source, std::size_t nbytes);

}  // namespace headrace
