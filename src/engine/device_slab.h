#pragma once

// What of a read is on its way to the device at one time.

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "device/backend.h"

namespace headrace {

// Pinned memory in blocks and as much memory of the device. Several threads fill it; each block is
// copied as soon as it is full and what was put into it is there.
class SlabMemory {
 public:
  SlabMemory(Backend& backend, int index, Queue& queue, std::size_t block_nbytes)
      : backend_(backend), index_(index), queue_(queue), block_nbytes_(block_nbytes) {}

 private:
  struct Block {
    std::shared_ptr<std::byte> pinned;
    Scratch<std::uint8_t> device;
    std::size_t used = 0;
    std::size_t unfilled = 0;  // pieces that are reserved and not filled
    bool full = false;
  };

 public:
  struct Piece {
    std::byte* host = nullptr;
    std::uint8_t* device = nullptr;
    Block* block = nullptr;
  };
  // Aligned to 16, readable 16 bytes past its end rounded up to 16, for as long as the slab lives.
  Piece reserve(std::size_t nbytes);
  // The piece holds what is to be copied.
  void filled(const Piece& piece);
  // Nothing more comes, and all is filled.
  void finish();

 private:
  Block& add_block(std::size_t nbytes);
  void copy(const Block& block);

  Backend& backend_;
  const int index_;
  Queue& queue_;
  const std::size_t block_nbytes_;
  std::mutex mutex_;
  std::list<Block> blocks_;   // under mutex_
  Block* current_ = nullptr;  // under mutex_
};

}  // namespace headrace
