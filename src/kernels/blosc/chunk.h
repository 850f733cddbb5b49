#pragma once

// The blosc 1 container: a header, offsets of blocks, and for each block one stream or, when it is
// split, one a byte of the type; each with its size before it.
// https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

enum class BloscInner : u8 { blosclz, lz4, snappy, zlib, zstd };
inline constexpr std::size_t kBloscInners = 5;
enum class BloscFilter : u8 { none, shuffle, bit_shuffle };

inline constexpr u32 kBloscHeader = 16;
inline constexpr u32 kBloscMaxStreams = 16;  // of a block
inline constexpr u32 kBloscVersion = 2, kBloscInnerVersion = 1;
// Flags of the header.
inline constexpr u32 kBloscShuffle = 0x01, kBloscMemcpyed = 0x02, kBloscBitShuffle = 0x04,
                     kBloscNotSplit = 0x10;

struct BloscHeader {
  u32 nbytes = 0;
  u32 blocksize = 1;
  u32 n_blocks = 0;
  u32 typesize = 1;
  BloscInner inner{};
  BloscFilter filter = BloscFilter::none;
  bool splits = false;   // all blocks but a short last one
  bool is_copy = false;  // the decoded bytes follow the header

  u32 block_nbytes(u32 block) const {
    const u32 left = nbytes - block * blocksize;
    return left < blocksize ? left : blocksize;
  }
  u32 n_streams(u32 block) const {
    return splits && block_nbytes(block) == blocksize ? typesize : 1;
  }
  BloscFilter filter_of(u32 block) const {
    // c-blosc shuffles the bits of a block with a multiple of 8 elements, and of no other.
    const bool plain =
        filter == BloscFilter::bit_shuffle && block_nbytes(block) / typesize % 8 != 0;
    return plain ? BloscFilter::none : filter;
  }
};

// `bytes`: the first kBloscHeader of frame.source.
Fault read_blosc_header(const u8* bytes, const Frame& frame, BloscHeader& header);

// How c-blosc lays out a chunk of so many bytes, at most 2^31 - 17.
BloscHeader lay_out_blosc(u32 nbytes, const BloscFormat& format);
// The first kBloscHeader bytes of a chunk that is `encoded_nbytes` long.
SIMT_HOST_DEVICE void put_blosc_header(const BloscHeader& header, u32 encoded_nbytes, u8* bytes) {
  bytes[0] = kBloscVersion;
  bytes[1] = kBloscInnerVersion;
  bytes[2] =
      static_cast<u8>(static_cast<u32>(header.inner) << 5 | (header.splits ? 0 : kBloscNotSplit) |
                      (header.is_copy ? kBloscMemcpyed : 0) |
                      (header.filter == BloscFilter::shuffle ? kBloscShuffle : 0) |
                      (header.filter == BloscFilter::bit_shuffle ? kBloscBitShuffle : 0));
  bytes[3] = static_cast<u8>(header.typesize);
  const u32 sizes[3] = {header.nbytes, header.blocksize, encoded_nbytes};
  for (u32 i = 0; i < 12; ++i) bytes[4 + i] = static_cast<u8>(sizes[i / 4] >> i % 4 * 8);
}

struct BloscStream {
  u32 offset, nbytes;  // within the chunk
};

SIMT_HOST_DEVICE u32 load_le_32(const u8* p) {
  return p[0] | u32{p[1]} << 8 | u32{p[2]} << 16 | u32{p[3]} << 24;
}

// Stream i of a block, which begins where the one before it ends. False: it does not lie within the
// chunk.
SIMT_HOST_DEVICE bool find_blosc_stream(
    const u8* chunk, u32 chunk_nbytes, u32 block, u32 i, BloscStream* streams) {
  const u32 at = i == 0 ? load_le_32(chunk + kBloscHeader + 4 * block)
                        : streams[i - 1].offset + streams[i - 1].nbytes;
  if (at > chunk_nbytes || chunk_nbytes - at < 4) return false;
  const u32 nbytes = load_le_32(chunk + at);
  streams[i] = {at + 4, nbytes};
  return nbytes <= chunk_nbytes - at - 4;
}

}  // namespace headrace::SIMT_SPACE
