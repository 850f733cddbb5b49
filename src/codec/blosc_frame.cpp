#include "codec/blosc_frame.h"

#include <libdeflate.h>
#include <snappy-c.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "codec/blosclz.h"
#include "codec/contexts.h"
#include "codec/lz4_block.h"
#include "codec/shuffle.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

constexpr unsigned kFormatVersion = 2;
// Flags of the header.
constexpr unsigned kShuffle = 0x01;
constexpr unsigned kMemcpyed = 0x02;
constexpr unsigned kBitShuffle = 0x04;
constexpr unsigned kExtended = 0x08;  // blosc2
constexpr unsigned kNotSplit = 0x10;
// Blocks are split into one stream a byte of the type up to this size of type, and down to this
// many elements a block.
constexpr std::size_t kMaxSplits = 16;
constexpr std::size_t kMinSplitElements = 128;

enum InnerCodec : unsigned { kBloscLz = 0, kLz4 = 1, kSnappy = 2, kZlib = 3, kZstd = 4 };

constexpr const char* kInnerNames[] = {"blosclz", "lz4", "snappy", "zlib", "zstd"};

}  // namespace

BloscFrame::BloscFrame(ConstBytes frame) : frame_(frame) {
  if (frame.size() < kHeaderNbytes) {
    throw_corrupt("a header of 16 bytes does not fit into " + std::to_string(frame.size()));
  }
  const auto version = std::to_integer<unsigned>(frame[0]);
  const auto flags = std::to_integer<unsigned>(frame[2]);
  typesize_ = std::max<std::size_t>(std::to_integer<std::size_t>(frame[3]), 1);
  nbytes_ = load_le<std::uint32_t>(frame.data() + 4);
  blocksize_ = load_le<std::uint32_t>(frame.data() + 8);
  const std::size_t frame_nbytes = load_le<std::uint32_t>(frame.data() + 12);
  // What a crash leaves of a file may be zeros.
  if (version == 0) throw_corrupt("container format 0, which there is not");
  if (version != kFormatVersion || (flags & kExtended) != 0) {
    throw Error(ErrorCode::unsupported,
                "container format " + std::to_string(version) + " is not that of blosc 1");
  }
  if (frame_nbytes != frame.size()) {
    throw_corrupt("the header says " + std::to_string(frame_nbytes) + " bytes, there are " +
                  std::to_string(frame.size()));
  }
  if (nbytes_ > INT32_MAX) throw_corrupt("the header says " + std::to_string(nbytes_) + " bytes");
  if (nbytes_ == 0) {
    blocksize_ = 1;
    return;
  }
  if (blocksize_ == 0 || blocksize_ > nbytes_) {
    throw_corrupt("blocks of " + std::to_string(blocksize_) + " bytes for a chunk of " +
                  std::to_string(nbytes_));
  }
  n_blocks_ = (nbytes_ + blocksize_ - 1) / blocksize_;
  is_copy_ = (flags & kMemcpyed) != 0;
  if (is_copy_) {
    check_decoded_size(nbytes_, frame.size() - kHeaderNbytes);
    return;
  }
  if (n_blocks_ > (frame.size() - kHeaderNbytes) / 4) {
    throw_corrupt("a table of " + std::to_string(n_blocks_) + " blocks does not fit");
  }
  inner_codec_ = flags >> 5;
  if (inner_codec_ > kZstd) {
    throw Error(ErrorCode::unsupported,
                "inner codec " + std::to_string(inner_codec_) + " is unknown");
  }
  may_split_ = (flags & kNotSplit) == 0 && typesize_ <= kMaxSplits &&
               blocksize_ / typesize_ >= kMinSplitElements;
  if (may_split_ && blocksize_ % typesize_ != 0) {
    throw_corrupt("split blocks of " + std::to_string(blocksize_) + " bytes for a type of " +
                  std::to_string(typesize_));
  }
  if ((flags & kShuffle) != 0 && typesize_ > 1) {
    filter_ = Filter::shuffle;
  } else if ((flags & kBitShuffle) != 0) {
    filter_ = Filter::bit_shuffle;
  }
}

ConstBytes BloscBlock::next_stream(std::size_t& position) const {
  const ConstBytes frame = frame_.frame_;
  if (position > frame.size() || frame.size() - position < 4) {
    throw_corrupt("a stream begins at " + std::to_string(position) + " of " +
                  std::to_string(frame.size()));
  }
  const std::size_t nbytes = load_le<std::uint32_t>(frame.data() + position);
  position += 4;
  if (nbytes > frame.size() - position) {
    throw_corrupt("a stream of " + std::to_string(nbytes) + " bytes ends after the frame");
  }
  const ConstBytes stream = frame.subspan(position, nbytes);
  position += nbytes;
  return stream;
}

void BloscBlock::decode_stream(ConstBytes stream, MutableBytes dst) const {
  bool good = false;
  const char* src = as_chars(stream);
  switch (frame_.inner_codec_) {
    case kBloscLz:
      good = blosclz_decode(stream, dst) == dst.size();
      break;
    case kLz4:
      good = lz4_decode_block(stream, dst);
      break;
    case kSnappy: {
      std::size_t n = 0;
      good = snappy_uncompressed_length(src, stream.size(), &n) == SNAPPY_OK && n == dst.size() &&
             snappy_uncompress(src, stream.size(), as_chars(dst), &n) == SNAPPY_OK;
      break;
    }
    case kZlib:
      good = libdeflate_zlib_decompress(
                 &deflate_decompressor(), src, stream.size(), dst.data(), dst.size(), nullptr) ==
             LIBDEFLATE_SUCCESS;
      break;
    case kZstd:
      good =
          ZSTD_decompressDCtx(
              &zstd_decompress_context(), dst.data(), dst.size(), src, stream.size()) == dst.size();
      break;
    default:
      break;
  }
  if (good) return;
  throw_corrupt(std::string("a stream of ") + kInnerNames[frame_.inner_codec_] + ", " +
                std::to_string(stream.size()) + " bytes, does not decode to " +
                std::to_string(dst.size()));
}

BloscBlock::BloscBlock(const BloscFrame& frame, std::size_t block, std::byte* target)
    : frame_(frame),
      nbytes_(frame.block_nbytes(block)),
      typesize_(frame.typesize_),
      filter_(frame.filter_) {
  const std::byte* table = frame.frame_.data() + BloscFrame::kHeaderNbytes;
  std::size_t position = load_le<std::uint32_t>(table + 4 * block);
  const bool split = frame.may_split_ && nbytes_ == frame.blocksize_;
  const std::size_t n_streams = split ? typesize_ : 1;
  const std::size_t stream_nbytes = nbytes_ / n_streams;
  // c-blosc shuffles the bits of a block with a multiple of 8 elements, and of no other.
  if (filter_ == BloscFrame::Filter::bit_shuffle && nbytes_ / typesize_ % 8 != 0) {
    filter_ = BloscFrame::Filter::none;
  }
  // Stored streams stay where they are unless the filter wants them in one piece.
  const bool in_pieces = filter_ == BloscFrame::Filter::shuffle;

  if (filter_ != BloscFrame::Filter::none) target = nullptr;
  const auto memory = [&] {
    if (target == nullptr) target = scratch_.emplace(nbytes_).data();
    return target;
  };
  for (std::size_t j = 0; j < n_streams; ++j) {
    const ConstBytes stream = next_stream(position);
    const std::byte* at = stream.data();
    if (stream.size() != stream_nbytes) {
      std::byte* const dst = memory() + j * stream_nbytes;
      decode_stream(stream, {dst, stream_nbytes});
      at = dst;
    } else if (!in_pieces && (split || target != nullptr)) {
      std::byte* const dst = memory() + j * stream_nbytes;
      std::memcpy(dst, stream.data(), stream_nbytes);
      at = dst;
    }
    if (j == 0) base_ = at;
    if (split && in_pieces) planes_[j] = at;
  }
  if (in_pieces && !split) {
    const std::size_t n = nbytes_ / typesize_;
    for (std::size_t j = 0; j < typesize_; ++j) planes_[j] = base_ + j * n;
  }
}

std::size_t BloscBlock::unit() const { return 8 * typesize_; }

void BloscBlock::write(std::size_t begin, std::size_t end, std::byte* dst) const {
  if (filter_ == BloscFrame::Filter::none) {
    if (dst != base_ + begin) std::memcpy(dst, base_ + begin, end - begin);
    return;
  }
  const std::size_t n = nbytes_ / typesize_;
  const std::size_t first = begin / typesize_;
  const std::size_t last = std::min(end / typesize_, n);
  if (first < last) {
    if (filter_ == BloscFrame::Filter::bit_shuffle) {
      bit_unshuffle(base_, typesize_, n, first, last - first, dst);
    } else {
      const std::byte* planes[kMaxTypesize];
      for (std::size_t j = 0; j < typesize_; ++j) planes[j] = planes_[j] + first;
      unshuffle(planes, typesize_, last - first, dst);
    }
  }
  // What is left over at the end of a block is no element and was not shuffled.
  const std::size_t tail = std::max(begin, n * typesize_);
  if (tail < end) std::memcpy(dst + (tail - begin), base_ + tail, end - tail);
}

}  // namespace headrace
