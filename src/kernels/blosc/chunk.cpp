#include "kernels/blosc/chunk.h"

#include <algorithm>

namespace headrace::SIMT_SPACE {
namespace {

constexpr u32 kExtended = 0x08;         // the flag of blosc2
constexpr u32 kMinSplitElements = 128;  // of a block
constexpr u32 kMinCompressed = 128;     // smaller chunks are copies

bool splits(const BloscFormat& format, u32 blocksize) {
  return format.inner != BloscFormat::Inner::zstd && format.typesize <= kBloscMaxStreams &&
         blocksize / format.typesize >= kMinSplitElements;
}

u32 choose_blocksize(u32 nbytes, const BloscFormat& format) {
  constexpr u32 kKiB = 1024;
  // By clevel, of 32 KiB; of twice as much for zstd.
  constexpr u32 kQuarters[10] = {1, 2, 4, 8, 16, 16, 32, 32, 32, 32};
  constexpr u32 kMaxPlane = 256 * kKiB, kMinSplit = 64 * kKiB, kMaxSplit = 1024 * kKiB;
  const bool is_zstd = format.inner == BloscFormat::Inner::zstd;
  if (nbytes < format.typesize) return 1;
  u32 size = nbytes;
  if (format.blocksize) {
    size = std::max(format.blocksize, kMinCompressed);
  } else if (nbytes >= 32 * kKiB) {
    size = kQuarters[format.clevel] * 8 * kKiB * (is_zstd ? 2 : 1);
    if (is_zstd && format.clevel == 9) size *= 2;
  }
  if (format.clevel > 0 && splits(format, size))
    size = std::clamp(std::min(size, kMaxPlane) * format.typesize, kMinSplit, kMaxSplit);
  size = std::min(size, nbytes);
  return size > format.typesize ? size / format.typesize * format.typesize : size;
}

}  // namespace

BloscHeader lay_out_blosc(u32 nbytes, const BloscFormat& format) {
  BloscHeader header;
  header.nbytes = nbytes;
  header.blocksize = choose_blocksize(nbytes, format);
  header.n_blocks = nbytes ? (nbytes - 1) / header.blocksize + 1 : 0;
  header.typesize = format.typesize;
  header.inner = format.inner == BloscFormat::Inner::zstd ? BloscInner::zstd : BloscInner::lz4;
  header.filter = static_cast<BloscFilter>(format.filter);
  header.splits = splits(format, header.blocksize);
  header.is_copy = format.clevel == 0 || nbytes < kMinCompressed;
  return header;
}

Fault read_blosc_header(const u8* bytes, const Frame& frame, BloscHeader& header) {
  if (frame.source_nbytes < kBloscHeader) return Fault::truncated;
  const u32 flags = bytes[2];
  if (bytes[0] == 0) return Fault::malformed;
  if (bytes[0] != kBloscVersion || (flags & kExtended)) return Fault::unsupported;
  header.typesize = bytes[3];
  header.nbytes = load_le_32(bytes + 4);
  header.blocksize = load_le_32(bytes + 8);
  const u32 said = load_le_32(bytes + 12);
  if (said > frame.source_nbytes) return Fault::truncated;
  if (said < frame.source_nbytes || header.nbytes > 0x7fffffff) return Fault::malformed;
  if (header.nbytes != frame.target_nbytes) return Fault::wrong_size;
  if (header.nbytes == 0) return Fault::none;
  if (header.typesize == 0 || header.blocksize == 0 || header.blocksize > header.nbytes)
    return Fault::malformed;
  header.is_copy = flags & kBloscMemcpyed;
  if (header.is_copy)
    return frame.source_nbytes == u64{kBloscHeader} + header.nbytes ? Fault::none
                                                                    : Fault::malformed;
  header.n_blocks = (header.nbytes - 1) / header.blocksize + 1;
  if (header.n_blocks > (frame.source_nbytes - kBloscHeader) / 4) return Fault::truncated;
  if (flags >> 5 >= kBloscInners || bytes[1] != kBloscInnerVersion) return Fault::unsupported;
  header.inner = static_cast<BloscInner>(flags >> 5);
  header.splits = !(flags & kBloscNotSplit) && header.typesize <= kBloscMaxStreams &&
                  header.blocksize / header.typesize >= kMinSplitElements;
  if (header.splits && header.blocksize % header.typesize != 0) return Fault::malformed;
  if ((flags & kBloscShuffle) && header.typesize > 1)
    header.filter = BloscFilter::shuffle;
  else if (flags & kBloscBitShuffle)
    header.filter = BloscFilter::bit_shuffle;
  return Fault::none;
}

}  // namespace headrace::SIMT_SPACE
