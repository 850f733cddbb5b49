#pragma once

// Memory of a device that cannot go now, because a graph is being made of a stream that it goes
// back in the order of. Its frees are kept until a later call finds the capture over.

#include <functional>

#include "headrace/device.h"
#include "headrace/tensor.h"

namespace headrace {

// Calls `free`, whose memory goes back behind `stream`. Throws that `unsupported`, as
// Backend::wrap_stream() does of a stream that is captured, or bad_alloc, it is kept and called
// again later. Throws it another Error, the driver is gone, at the end of the process or in a child
// of fork, and the memory with it.
void free_or_keep(const Device& device, Stream stream, std::function<void()> free) noexcept;

// Calls `free`, which lets go of what Backend::allocate() gave, behind what `stream` was given
// until now, not only the default stream. What it holds is kept until then, too: the stream's
// owner, say.
void free_behind(const Device& device, Stream stream, std::function<void()> free) noexcept;

// Frees what is kept for the device, of each stream up to what has to wait still. For whoever makes
// a queue, as each read and write does.
void free_kept(const Device& device) noexcept;

}  // namespace headrace
