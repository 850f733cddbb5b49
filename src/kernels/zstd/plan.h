#pragma once

#include <span>
#include <vector>

#include "kernels/zstd/format.h"
#include "kernels/zstd/parse.h"
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

// What is in a source; nothing if there is a fault.
struct Counted {
  Tally tally;
  Fault fault;
};

// A batch whose bytes are on the host, parsed by several threads: each parses ranges of sources, as
// if each range were all there is, and then copies them to where they belong in a slab.
class HostParse {
 public:
  HostParse(std::span<const headrace::Frame> frames, std::span<const u8* const> host_sources);

  // Of the frames from `first` on, as many as a slab may hold.
  Plan upload(Queue& queue, std::span<const headrace::Frame> frames, std::size_t first) const;

 private:
  class Range {
   public:
    void reserve(std::size_t blocks);
    // A source behind those that `tally` counts, which it joins unless there is a fault. It is
    // walked again when the room was too little.
    Fault parse(const u8* data, const Source& source, u32 index, Tally& tally);
    // As many as `count` says of what is behind `from`, to behind `to`.
    void copy(const Tally& from,
              const Tally& to,
              const Tally& count,
              u32 first_source,
              const ParseOutput& output) const;

   private:
    void resize(std::size_t blocks);
    ParseOutput output();

    RecyclingVector<Frame> frames_;
    RecyclingVector<Block> blocks_;
    RecyclingVector<u32> with_sequences_, with_pool_literals_;
  };

  std::size_t length_;  // of a range, the last one may be shorter
  RecyclingVector<Counted> counted_;
  std::vector<Range> ranges_;
};

// The same on the device, after one wait for it.
RecyclingVector<Counted> count_on_device(Queue& queue, std::span<const headrace::Frame> frames);
Plan parse_on_device(Queue& queue,
                     std::span<const headrace::Frame> frames,
                     std::span<const Counted> counted);

}  // namespace headrace::SIMT_SPACE::zstd
