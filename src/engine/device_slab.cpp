#include "engine/device_slab.h"

namespace headrace {

SlabMemory::Piece SlabMemory::add_block(std::size_t nbytes) {
  Block block{backend_.allocate_pinned(index_, nbytes), Scratch<std::uint8_t>(queue_, nbytes)};
  const Piece piece{block.pinned.get(), block.device.data()};
  const std::lock_guard lock(mutex_);
  blocks_.push_back(std::move(block));
  return piece;
}

SlabMemory::Piece SlabMemory::Filler::reserve(std::size_t nbytes) {
  const std::size_t taken = (nbytes + 15) / 16 * 16 + kSourcePadding;
  if (taken > size_ - used_) {
    flush();
    size_ = std::max(memory_.block_nbytes_, taken);
    used_ = copied_ = 0;
    block_ = memory_.add_block(size_);
  }
  const Piece piece{block_.host + used_, block_.device + used_};
  used_ += taken;
  return piece;
}

void SlabMemory::Filler::flush() {
  if (used_ > copied_) {
    memory_.queue_.upload_pinned(block_.device + copied_, block_.host + copied_, used_ - copied_);
  }
  copied_ = used_;
}

}  // namespace headrace
