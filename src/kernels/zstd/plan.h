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

// Sources parsed on the host as if they were all there is.
class ParsedRange {
 public:
  void reserve(std::size_t blocks);
  // A source behind those that `tally` counts, which it joins unless there is a fault. `index`: its
  // place in the range. It is walked again when the room was too little.
  Fault parse(const u8* data, const Source& source, u32 index, Tally& tally);
  // As many as `count` says of what is behind `from`, to behind `to`. `first_source`: the place of
  // the range, which may begin before the slab that `output` is of.
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

// One source, parsed when it was read.
struct SourceHeaders final : Headers {
  Counted counted;
  ParsedRange parsed;
};

// A batch whose headers the host has. Where it has all bytes, several threads parse ranges of
// sources; then ranges are copied to where they belong in a slab.
class HostParse {
 public:
  HostParse(std::span<const headrace::Frame> frames, std::span<const u8* const> host_sources);
  // Of SourceHeaders, needed as long as this.
  explicit HostParse(std::span<const Headers* const> headers);

  // Of the frames from `first` on, as many as a slab may hold.
  Plan upload(Queue& queue, std::span<const headrace::Frame> frames, std::size_t first) const;

 private:
  std::size_t length_;  // of a range, the last one may be shorter
  RecyclingVector<Counted> counted_;
  std::vector<ParsedRange> parsed_;  // none of those that were parsed before
  std::vector<const ParsedRange*> ranges_;
};

// The same on the device, after one wait for it.
RecyclingVector<Counted> count_on_device(Queue& queue, std::span<const headrace::Frame> frames);
Plan parse_on_device(Queue& queue,
                     std::span<const headrace::Frame> frames,
                     std::span<const Counted> counted);

}  // namespace headrace::SIMT_SPACE::zstd
