#pragma once

// The blosc1 container, read block by block.
// https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "codec/scratch.h"

namespace headrace {

class BloscFrame {
 public:
  static constexpr std::size_t kHeaderNbytes = 16;

  // Checks header and block table against the size of `frame`, which must outlive the object.
  explicit BloscFrame(ConstBytes frame);

  std::size_t nbytes() const { return nbytes_; }
  std::size_t n_blocks() const { return n_blocks_; }
  std::size_t block_offset(std::size_t b) const { return b * blocksize_; }
  std::size_t block_nbytes(std::size_t b) const {
    return b + 1 < n_blocks_ ? blocksize_ : nbytes_ - b * blocksize_;
  }
  std::size_t block_of(std::size_t offset) const { return offset / blocksize_; }
  // The decoded bytes, when the frame holds them as they are.
  bool is_copy() const { return is_copy_; }
  ConstBytes copy() const { return frame_.subspan(kHeaderNbytes, nbytes_); }

 private:
  friend class BloscBlock;
  enum class Filter : std::uint8_t { none, shuffle, bit_shuffle };

  ConstBytes frame_;
  std::size_t nbytes_ = 0;
  std::size_t blocksize_ = 1;
  std::size_t n_blocks_ = 0;
  std::size_t typesize_ = 1;
  unsigned inner_codec_ = 0;
  bool may_split_ = false;
  bool is_copy_ = false;
  Filter filter_ = Filter::none;
};

// One block with its streams decoded and its shuffle still to be undone, for any part of it.
class BloscBlock {
 public:
  // Unshuffled blocks are decoded to `target` at once when it is given.
  BloscBlock(const BloscFrame& frame, std::size_t block, std::byte* target);

  // Ranges given to write() begin at multiples of this.
  std::size_t unit() const;
  // Bytes [begin, end) of the block to dst. Nothing to do when dst is the target's own memory.
  void write(std::size_t begin, std::size_t end, std::byte* dst) const;

 private:
  static constexpr std::size_t kMaxTypesize = 255;

  void decode_stream(ConstBytes stream, MutableBytes dst) const;
  ConstBytes next_stream(std::size_t& position) const;

  const BloscFrame& frame_;
  std::size_t nbytes_;
  std::size_t typesize_;
  BloscFrame::Filter filter_;
  std::optional<Scratch> scratch_;
  const std::byte* base_ = nullptr;        // the streams one after another; null when split
  const std::byte* planes_[kMaxTypesize];  // for byte shuffle
};

}  // namespace headrace
