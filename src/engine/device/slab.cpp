#include "engine/device/slab.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/trace.h"

namespace headrace {

std::shared_ptr<std::byte> PinnedBlocks::take(std::size_t nbytes) {
  Leaving oldest;
  {
    const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  leaving_.push_back({std::move(block), std::move(copied)});
}

namespace {

std::size_t padded(std::size_t nbytes) { return (nbytes + 15) / 16 * 16 + kSourcePadding; }

}  // namespace

SlabMemory::Piece SlabMemory::reserve(std::size_t nbytes) {
  const std::size_t taken = padded(nbytes);
  if (taken > block_nbytes_) return reserve_alone(make_block(taken), taken, false);
  const MutexLock lock(mutex_);
  while (adding_ && !has_room(taken)) added_.wait(mutex_);
  if (!has_room(taken)) add_block();
  return cut(*current_, taken);
}

SlabMemory::Piece SlabMemory::reserve_for_parts(std::size_t nbytes) {
  const std::size_t taken = padded(nbytes);
  return reserve_alone(make_block(taken), taken, true);
}

SlabMemory::Piece SlabMemory::reserve_in_place(std::uint8_t* target,
                                               std::size_t nbytes,
                                               bool in_parts,
                                               std::size_t alignment,
                                               std::uint64_t offset) {
  std::shared_ptr<std::byte> pinned = pinned_.take(padded(nbytes) + alignment - 1);
  const auto at = reinterpret_cast<std::uintptr_t>(pinned.get());
  std::byte* const host = pinned.get() + (offset - at) % alignment;
  return reserve_alone(
      {std::shared_ptr<std::byte>(std::move(pinned), host), {}, target}, nbytes, in_parts);
}

SlabMemory::Piece SlabMemory::reserve_alone(Block fresh, std::size_t nbytes, bool in_parts) {
  fresh.full = true;
  fresh.in_parts = in_parts;
  if (in_parts) fresh.ready.reserve(16);
  const MutexLock lock(mutex_);
  blocks_.push_back(std::move(fresh));
  return cut(blocks_.back(), nbytes);
}

bool SlabMemory::has_room(std::size_t nbytes) const {
  return current_ && nbytes <= block_nbytes_ - current_->used;
}

// Without the lock: to have a block is to wait for the device or the driver, and what others have
// filled meanwhile is to be copied.
void SlabMemory::add_block() {
  Block* const before = std::exchange(current_, nullptr);
  if (before) before->full = true;
  const bool filled = before && before->unfilled == 0;
  adding_ = true;
  std::optional<Block> fresh;
  std::exception_ptr error;
  try {
    const MutexUnlock free(mutex_);
    if (filled) copy(*before);
    fresh.emplace(make_block(block_nbytes_));
  } catch (...) {
    error = std::current_exception();
  }
  adding_ = false;
  added_.notify_all();  // of several, the next one tries where this one failed
  if (error) std::rethrow_exception(error);
  blocks_.push_back(std::move(*fresh));
  current_ = &blocks_.back();
}

SlabMemory::Block SlabMemory::make_block(std::size_t nbytes) {
  Block block{pinned_.take(nbytes), Scratch<std::uint8_t>(queue_, nbytes)};
  block.device = block.memory.data();
  return block;
}

SlabMemory::Piece SlabMemory::cut(Block& block, std::size_t nbytes) {
  const Piece piece{block.pinned.get() + block.used, block.device + block.used, &block};
  block.used += nbytes;
  ++block.unfilled;
  return piece;
}

// Memory comes in the order of the queue: whoever had it before may use it until the mark.
SlabMemory::Piece SlabMemory::reserve_on_device(std::size_t nbytes) {
  Scratch<std::uint8_t> memory(queue_, padded(nbytes));
  const std::unique_ptr<Mark> free = queue_.mark();
  Piece piece;
  piece.device = memory.data();
  {
    const MutexLock lock(mutex_);
    unpinned_.push_back(std::move(memory));
  }
  free->wait();
  return piece;
}

std::uint8_t* SlabMemory::cut_for_mapped(std::size_t nbytes) {
  const MutexLock lock(mutex_);
  if (nbytes > left_) {
    of_mapped_.emplace_back(queue_, std::max(nbytes, block_nbytes_));
    left_ = of_mapped_.back().size();
    mapped_copies_.wait_for(queue_);
  }
  const Scratch<std::uint8_t>& block = of_mapped_.back();
  std::uint8_t* const memory = block.data() + (block.size() - left_);
  left_ -= nbytes;
  return memory;
}

SlabMemory::Piece SlabMemory::reserve_mapped(std::vector<MappedFiles::Part> parts,
                                             std::size_t nbytes,
                                             std::uint8_t* target) {
  Piece piece;
  piece.device = target ? target : cut_for_mapped(padded(nbytes));
  const Span span("copy", nbytes);
  {
    // Before they are copied: an error must find them here until the queues are drained.
    const MutexLock lock(mutex_);
    mapped_.insert(mapped_.end(), parts.begin(), parts.end());
  }
  std::size_t at = 0;
  for (const MappedFiles::Part& part : parts) {
    part.window->copy(mapped_copies_, piece.device + at, part.at, part.nbytes);
    at += part.nbytes;
  }
  return piece;
}

// The driver lets one thread at a time give work to a stream, and those that meet there sleep: of
// copies of 512 KiB one thread gives each in 2.8 us, four threads at once in 10 and eight in 54
// (H100, device-trials.json).
void SlabMemory::filled_part(const Piece& piece, std::size_t at, std::size_t nbytes) {
  Block& block = *piece.block;
  if (!block.in_parts) return;
  const MutexLock lock(mutex_);
  const auto offset = static_cast<std::size_t>(piece.host - block.pinned.get());
  block.ready.push_back({offset + at, nbytes});
  if (block.giving) return;
  block.giving = true;
  while (!block.ready.empty()) {
    const Part part = take_ready(block);
    const MutexUnlock free(mutex_);
    const Span span("copy", part.nbytes);
    queue_.upload_pinned(block.device + part.at, block.pinned.get() + part.at, part.nbytes);
  }
  block.giving = false;
}

// The first of all, with what follows it in the block.
SlabMemory::Part SlabMemory::take_ready(Block& block) {
  std::vector<Part>& ready = block.ready;
  const auto before = [](const Part& a, const Part& b) { return a.at < b.at; };
  std::sort(ready.begin(), ready.end(), before);
  Part part = ready.front();
  std::size_t n = 1;
  for (; n < ready.size() && ready[n].at == part.at + part.nbytes; ++n)
    part.nbytes += ready[n].nbytes;
  ready.erase(ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(n));
  return part;
}

void SlabMemory::filled(const Piece& piece) {
  if (!piece.block) return;
  {
    const MutexLock lock(mutex_);
    if (--piece.block->unfilled > 0 || !piece.block->full) return;
  }
  copy(*piece.block);
}

void SlabMemory::finish() {
  Block* last = nullptr;
  bool is_mapped = false;
  {
    const MutexLock lock(mutex_);
    last = std::exchange(current_, nullptr);
    is_mapped = !mapped_.empty();
  }
  if (last) copy(*last);
  if (is_mapped) queue_.wait_for(mapped_copies_);
}

void SlabMemory::copy(Block& block) {
  if (!block.in_parts) {
    const Span span("copy", block.used);
    queue_.upload_pinned(block.device, block.pinned.get(), block.used);
  }
  // First: the block would be taken again without it.
  std::unique_ptr<Mark> copied = queue_.mark();
  pinned_.give_back(std::move(block.pinned), std::move(copied));
}

}  // namespace headrace
