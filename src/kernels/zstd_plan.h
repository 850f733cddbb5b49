#pragma once

#include <span>
#include <vector>

#include "kernels/zstd_format.h"
#include "kernels/zstd_parse.h"
#include "simt/recycling_vector.h"

namespace headrace::SIMT_SPACE::zstd {

// A slab: frames of a batch that are decoded together, parsed.
struct Plan {
  RecyclingVector<Source> sources;  // as on the device; at least one
  Tally total;
  // On the device.
  Scratch<u8> memory;
  Source* device_sources = nullptr;
  Frame* frames = nullptr;
  Block* blocks = nullptr;
  u32 *with_sequences = nullptr, *with_pool_literals = nullptr;  // indices of blocks
};

// What is in each of the sources, counted on the device. Waits for it.
struct Counted {
  Tally tally;
  Fault fault;
};
std::vector<Counted> count_on_device(Queue& queue, std::span<const headrace::Frame> frames);

// Of the first of the frames, as many as a slab may hold.
Plan parse_on_host(Queue& queue,
                   std::span<const headrace::Frame> frames,
                   std::span<const u8* const> host_sources);
Plan parse_on_device(Queue& queue,
                     std::span<const headrace::Frame> frames,
                     std::span<const Counted> counted);

}  // namespace headrace::SIMT_SPACE::zstd
