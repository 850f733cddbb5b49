#pragma once

// On the host, headers of a source lie in lines of memory far from each other, and its parser waits
// for each in turn: a quarter of a microsecond a block, more than the device takes for it. Walks of
// several sources, turn by turn, have the lines come side by side.

#include <algorithm>
#include <span>

#include "kernels/zstd/parse.h"

namespace headrace::SIMT_SPACE::zstd {

// Asks for the lines of memory that hold the headers of a source. Nothing is checked but what must
// be to stay in the source.
class LookAhead {
 public:
  LookAhead() = default;
  LookAhead(const u8* data, u64 nbytes) : data_(data), nbytes_(nbytes) { ask_for(0); }

  // To the next block, whose header was asked for. False at the end of the first frame.
  bool step() {
    if (at_ == 0 && nbytes_ > 4) at_ = 4 + read_frame_descriptor(data_[4]).nbytes();
    const u64 block = at_ + 3;
    if (at_ == 0 || block >= nbytes_) return false;
    const u32 header = static_cast<u32>(read_little(data_ + at_, 3));
    const u32 type = header >> 1 & 3;
    at_ = header & 1 ? nbytes_ : block + (type == 1 ? 1 : header >> 3);
    ask_for(at_);
    if (type == 2) {
      const auto room = static_cast<u32>(nbytes_ - block);
      const LiteralsHeader literals = read_literals_header(data_ + block, room);
      ask_for(block + literals.header_nbytes + literals.nbytes);
    }
    return true;
  }

 private:
  void ask_for(u64 at) const {
    if (at < nbytes_) __builtin_prefetch(data_ + at);
  }

  const u8* data_ = nullptr;
  u64 nbytes_ = 0, at_ = 0;
};

// Sources, and blocks of each: empty ones, which are nothing to the parser, might be millions.
inline constexpr std::size_t kLookAhead = 32, kLookAheadBlocks = 1024;

// Of the first sources; gives the number of blocks that it has seen.
inline std::size_t look_ahead(std::span<const headrace::Frame> frames,
                              std::span<const u8* const> host_sources) {
  LookAhead sources[kLookAhead];
  for (std::size_t i = 0; i < std::min(frames.size(), kLookAhead); ++i)
    sources[i] = {host_sources[i], frames[i].source_nbytes};
  std::size_t blocks = 0;
  for (std::size_t i = 0, before = 0; i < kLookAheadBlocks; ++i) {
    for (LookAhead& source : sources) blocks += source.step();
    if (blocks == before) break;
    before = blocks;
  }
  return blocks;
}

}  // namespace headrace::SIMT_SPACE::zstd
