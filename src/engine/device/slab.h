#pragma once

// What of a read is on its way to the device at one time.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "device/backend.h"
#include "device/mapped_files.h"

namespace headrace {

// Of a read or a write, whatever their size.
inline constexpr std::size_t kSlabChunks = 16384;

// Pinned memory of the slabs of one read. Measured on one H200 with uncompressed chunks: blocks
// that are taken again at once bring 51 GB/s to the device, those that wait for the slab's end 33.
class PinnedBlocks {
 public:
  PinnedBlocks(Backend& backend, int index) : backend_(backend), index_(index) {}

  // When many blocks are being copied, waits for the first of them.
  std::shared_ptr<std::byte> take(std::size_t nbytes);
  // It is taken again as soon as `copied`, while it is in the processor's cache.
  void give_back(std::shared_ptr<std::byte> block, std::unique_ptr<Mark> copied);

 private:
  struct Leaving {
    std::shared_ptr<std::byte> block;
    std::unique_ptr<Mark> copied;
  };
  static constexpr std::size_t kMostLeaving = 8;

  Backend& backend_;
  const int index_;
  Mutex mutex_;
  std::deque<Leaving> leaving_ GUARDED_BY(mutex_);
};

// Pinned memory in blocks and as much memory of the device. Several threads fill it; each block is
// copied as soon as it is full and what was put into it is there, and its pinned memory is taken
// again.
class SlabMemory {
 public:
  // `mapped_copies`: the queue of reserve_mapped()'s copies, for slabs that others are copied
  // beside. With copies on the slabs' own streams, what the first of three slabs uploaded for its
  // kernels came behind the copies of the other two, all three were decoded at the same time, and
  // nothing was copied meanwhile (a trace on an H100); beside a stream of copies it gets between.
  SlabMemory(PinnedBlocks& pinned,
             Queue& queue,
             std::size_t block_nbytes,
             Queue* mapped_copies = nullptr)
      : pinned_(pinned),
        queue_(queue),
        mapped_copies_(mapped_copies ? *mapped_copies : queue),
        block_nbytes_(block_nbytes) {}

 private:
  struct Part {
    std::size_t at;
    std::size_t nbytes;
  };
  struct Block {
    std::shared_ptr<std::byte> pinned;
    Scratch<std::uint8_t> memory;  // none where the bytes are copied to others' memory
    std::uint8_t* device = nullptr;
    std::size_t used = 0;
    std::size_t unfilled = 0;  // pieces that are reserved and not filled
    bool full = false;
    bool in_parts = false;      // its parts are copied one by one
    std::vector<Part> ready{};  // parts that are there and were not given to the queue yet
    bool giving = false;        // a thread gives them
  };

 public:
  struct Piece {
    std::byte* host = nullptr;
    std::uint8_t* device = nullptr;
    Block* block = nullptr;
  };
  // Aligned to 16, readable 16 bytes past its end rounded up to 16.
  Piece reserve(std::size_t nbytes);
  // The same, for one that several threads fill: filled_part() of each part, then filled().
  Piece reserve_for_parts(std::size_t nbytes);
  // To be copied to `target`, no byte more; `in_parts`: as above. The host's memory lies to
  // multiples of `alignment` as `offset` does.
  Piece reserve_in_place(std::uint8_t* target,
                         std::size_t nbytes,
                         bool in_parts,
                         std::size_t alignment = 1,
                         std::uint64_t offset = 0);
  // Without host memory and block, to be written now by others than the queue: waits until that may
  // be.
  Piece reserve_on_device(std::size_t nbytes);
  // Without host memory and block: the copies of the parts, `nbytes` in all, are given to their
  // queue, to `target` if there is one.
  Piece reserve_mapped(std::vector<MappedFiles::Part> parts,
                       std::size_t nbytes,
                       std::uint8_t* target);
  // Copies the part at once, if the piece is for parts. No thread waits for another's call of the
  // driver: the one that is at it gives what has come meanwhile, too.
  void filled_part(const Piece& piece, std::size_t at, std::size_t nbytes);
  // The piece holds what is to be copied; without a block, nothing is.
  void filled(const Piece& piece);
  // Nothing more comes, and all is filled: what the queue is given from now on finds it there.
  void finish();

 private:
  Block make_block(std::size_t nbytes);
  // Makes it a block of its own.
  Piece reserve_alone(Block fresh, std::size_t nbytes, bool in_parts);
  // A new current one. Leaves the lock meanwhile.
  void add_block() REQUIRES(mutex_);
  bool has_room(std::size_t nbytes) const REQUIRES(mutex_);
  // The next bytes of the block.
  Piece cut(Block& block, std::size_t nbytes) REQUIRES(mutex_);
  Part take_ready(Block& block) REQUIRES(mutex_);
  void copy(Block& block);
  // Memory of the device that is written in the order of mapped_copies_.
  std::uint8_t* cut_for_mapped(std::size_t nbytes);

  PinnedBlocks& pinned_;
  Queue& queue_;
  Queue& mapped_copies_;  // may be queue_
  const std::size_t block_nbytes_;
  Mutex mutex_;
  ConditionVariable added_;                 // a thread is done with adding
  bool adding_ GUARDED_BY(mutex_) = false;  // one thread adds a block
  // Their memory is of who has reserved it, and of who copies them once all is there.
  std::list<Block> blocks_ GUARDED_BY(mutex_);
  Block* current_ GUARDED_BY(mutex_) = nullptr;
  std::vector<Scratch<std::uint8_t>> unpinned_ GUARDED_BY(mutex_);
  // What is copied from where it lies, and to where; of the last block so much is left, at its end.
  std::vector<MappedFiles::Part> mapped_ GUARDED_BY(mutex_);
  std::vector<Scratch<std::uint8_t>> of_mapped_ GUARDED_BY(mutex_);
  std::size_t left_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
