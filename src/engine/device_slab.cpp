#include "engine/device_slab.h"

#include <utility>

#include "base/trace.h"

namespace headrace {

std::shared_ptr<std::byte> PinnedBlocks::take(std::size_t nbytes) {
  Leaving oldest;
  {
    const std::lock_guard lock(mutex_);
    if (leaving_.size() >= kMostLeaving) {
      oldest = std::move(leaving_.front());
      leaving_.pop_front();
    }
  }
  if (oldest.copied) oldest.copied->wait();
  oldest.block.reset();
  return backend_.allocate_pinned(index_, nbytes);
}

void PinnedBlocks::give_back(std::shared_ptr<std::byte> block, std::unique_ptr<Mark> copied) {
  const std::lock_guard lock(mutex_);
  leaving_.push_back({std::move(block), std::move(copied)});
}

namespace {

std::size_t padded(std::size_t nbytes) { return (nbytes + 15) / 16 * 16 + kSourcePadding; }

}  // namespace

SlabMemory::Piece SlabMemory::reserve(std::size_t nbytes) {
  const std::size_t taken = padded(nbytes);
  Block* full = nullptr;
  Piece piece;
  {
    const std::lock_guard lock(mutex_);
    Block* block = current_;
    if (taken > block_nbytes_) {
      block = &add_block(taken);
      block->full = true;
    } else if (!block || taken > block_nbytes_ - block->used) {
      if (block) {
        block->full = true;
        if (block->unfilled == 0) full = block;
      }
      block = current_ = &add_block(block_nbytes_);
    }
    piece = {block->pinned.get() + block->used, block->device.data() + block->used, block};
    block->used += taken;
    ++block->unfilled;
  }
  if (full) copy(*full);
  return piece;
}

// Memory comes in the order of the queue: whoever had it before may use it until the mark.
SlabMemory::Piece SlabMemory::reserve_on_device(std::size_t nbytes) {
  Piece piece;
  std::unique_ptr<Mark> free;
  {
    const std::lock_guard lock(mutex_);
    unpinned_.emplace_back(queue_, padded(nbytes));
    piece.device = unpinned_.back().data();
    free = queue_.mark();
  }
  free->wait();
  return piece;
}

void SlabMemory::filled(const Piece& piece) {
  if (!piece.block) return;
  {
    const std::lock_guard lock(mutex_);
    if (--piece.block->unfilled > 0 || !piece.block->full) return;
  }
  copy(*piece.block);
}

void SlabMemory::finish() {
  if (current_) copy(*std::exchange(current_, nullptr));
}

SlabMemory::Block& SlabMemory::add_block(std::size_t nbytes) {
  blocks_.push_back({pinned_.take(nbytes), Scratch<std::uint8_t>(queue_, nbytes)});
  return blocks_.back();
}

void SlabMemory::copy(Block& block) {
  const Span span("copy", block.used);
  queue_.upload_pinned(block.device.data(), block.pinned.get(), block.used);
  if (!keeps_host_) pinned_.give_back(std::move(block.pinned), queue_.mark());
}

}  // namespace headrace
