#pragma once

// What of a read is on its way to the device at one time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/backend.h"

namespace headrace {

// Pinned memory and as much memory of the device, filled by several threads at once and copied
// block by block as each is full.
class SlabMemory {
 public:
  SlabMemory(Backend& backend, int index, Queue& queue, std::size_t block_nbytes)
      : backend_(backend), index_(index), queue_(queue), block_nbytes_(block_nbytes) {}

  struct Piece {
    std::byte* host = nullptr;
    std::uint8_t* device = nullptr;
  };

  // One thread's way to fill it.
  class Filler {
   public:
    explicit Filler(SlabMemory& memory) : memory_(memory) {}
    // Aligned to 16, readable 16 bytes past its end rounded up to 16, for as long as the slab
    // lives.
    Piece reserve(std::size_t nbytes);
    // Copies what was reserved and filled since the last time.
    void flush();

   private:
    SlabMemory& memory_;
    Piece block_;
    std::size_t size_ = 0;
    std::size_t used_ = 0;
    std::size_t copied_ = 0;
  };

 private:
  struct Block {
    std::shared_ptr<std::byte> pinned;
    Scratch<std::uint8_t> device;
  };
  Piece add_block(std::size_t nbytes);

  Backend& backend_;
  const int index_;
  Queue& queue_;
  const std::size_t block_nbytes_;
  std::mutex mutex_;
  std::vector<Block> blocks_;  // under mutex_
};

}  // namespace headrace
