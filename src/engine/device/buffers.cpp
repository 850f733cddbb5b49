#include "engine/device/buffers.h"

#include <cstring>

#include "base/thread_pool.h"
#include "engine/device/drain.h"
#include "engine/device/stages.h"

namespace headrace {

void ByteCopies::add(const std::uint8_t* source, std::uint8_t* target, std::size_t nbytes) {
  Placement placement;
  placement.source = source;
  placement.target = target;
  placement.count[0] = static_cast<std::int64_t>(nbytes);
  placement.from[0].stride = placement.to[0].stride = 1;
  placements_.push_back(placement);
}

void ByteCopies::run(Queue& queue, const Kernels& kernels) const {
  if (placements_.empty()) return;
  PlaceBatch batch;
  batch.placements = placements_;
  batch.axes = 1;
  kernels.place(queue, batch);
}

Sources copy_sources(Queue& queue,
                     Backend& backend,
                     int index,
                     std::span<const BatchBuffer> buffers) {
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
  ByteCopies copies;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (!buffers[i].on_device) continue;
    copies.add(reinterpret_cast<const std::uint8_t*>(buffers[i].data),
               sources.memory.data() + offsets[i],
               buffers[i].nbytes);
  }
  copies.run(queue, backend.kernels());
  if (from_host == nbytes) {
    for (const BatchBuffer& buffer : buffers)
      sources.on_host.push_back(reinterpret_cast<const std::uint8_t*>(buffer.data));
  }
  drain.dismiss();
  return sources;
}

}  // namespace headrace
