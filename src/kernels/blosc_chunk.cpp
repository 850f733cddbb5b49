#include "kernels/blosc_chunk.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr u32 kFormatVersion = 2, kInnerVersion = 1;
// Flags of the header.
constexpr u32 kShuffle = 0x01, kMemcpyed = 0x02, kBitShuffle = 0x04, kNotSplit = 0x10;
constexpr u32 kExtended = 0x08;  // blosc2
// Blocks are split up to this size of type, and down to this many elements a block.
constexpr u32 kMaxSplits = 16, kMinSplitElements = 128;

}  // namespace

Fault read_blosc_header(const u8* bytes, const Frame& frame, BloscHeader& header) {
  if (frame.source_nbytes < kBloscHeader) return Fault::truncated;
  const u32 flags = bytes[2];
  if (bytes[0] != kFormatVersion || (flags & kExtended)) return Fault::unsupported;
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
  header.is_copy = flags & kMemcpyed;
  if (header.is_copy)
    return frame.source_nbytes == u64{kBloscHeader} + header.nbytes ? Fault::none
                                                                    : Fault::malformed;
  header.n_blocks = (header.nbytes - 1) / header.blocksize + 1;
  if (header.n_blocks > (frame.source_nbytes - kBloscHeader) / 4) return Fault::truncated;
  if (flags >> 5 >= kBloscInners || bytes[1] != kInnerVersion) return Fault::unsupported;
  header.inner = static_cast<BloscInner>(flags >> 5);
  header.splits = !(flags & kNotSplit) && header.typesize <= kMaxSplits &&
                  header.blocksize / header.typesize >= kMinSplitElements;
  if (header.splits && header.blocksize % header.typesize != 0) return Fault::malformed;
  if ((flags & kShuffle) && header.typesize > 1)
    header.filter = BloscFilter::shuffle;
  else if (flags & kBitShuffle)
    header.filter = BloscFilter::bit_shuffle;
  return Fault::none;
}

}  // namespace headrace::SIMT_SPACE
