#include "engine/device/buffers.h"

#include <cstring>

#include "base/thread_pool.h"
#include "base/trace.h"
#include "engine/device/drain.h"
#include "engine/device/stages.h"

namespace headrace {

Sources copy_sources(Queue& queue,
                     Backend& backend,
                     int index,
                     std::span<const BatchBuffer> buffers) {
  const Span span("copy");
  // Those of the host come first, to be one copy.
  std::vector<std::size_t> offsets(buffers.size());
  std::size_t nbytes = 0, from_host = 0;
  for (const bool on_device : {false, true}) {
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      if (buffers[i].on_device != on_device) continue;
      offsets[i] = nbytes;
      nbytes += aligned_nbytes(buffers[i].nbytes);
    }
    if (!on_device) from_host = nbytes;
  }
  Sources sources;
  Drain drain(queue);  // before the pinned block goes, when the rest fails
  sources.memory = Scratch<std::uint8_t>(queue, nbytes);
  for (std::size_t offset : offsets) sources.frames.push_back(sources.memory.data() + offset);
  if (from_host > 0) {
    sources.pinned = backend.allocate_pinned(index, from_host);
    parallel_for(buffers.size(), [&](std::size_t i) {
      const BatchBuffer& buffer = buffers[i];
      if (!buffer.on_device && buffer.nbytes > 0)
        std::memcpy(sources.pinned.get() + offsets[i], buffer.data, buffer.nbytes);
    });
    queue.upload_pinned(sources.memory.data(), sources.pinned.get(), from_host);
  }
  std::vector<Frame> copies;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (!buffers[i].on_device) continue;
    copies.push_back(copy_of(reinterpret_cast<const std::uint8_t*>(buffers[i].data),
                             sources.memory.data() + offsets[i],
                             buffers[i].nbytes));
  }
  backend.kernels().copy(queue, copies);
  if (from_host == nbytes) {
    for (const BatchBuffer& buffer : buffers)
      sources.on_host.push_back(reinterpret_cast<const std::uint8_t*>(buffer.data));
  }
  drain.dismiss();
  return sources;
}

}  // namespace headrace
