// The streams of blosc 1's own codec. A control byte below 32 starts a run of that many literals
// and one more. Any other starts a match: 3 bits of length, 5 high bits of distance; then more
// length (while 255), 8 low bits of distance, and 16 bits of distance more when all 13 are set.
// The first byte is always literals, and so is the last token.

#include "kernels/lz/decode.h"
#include "kernels/lz/dialects.h"

namespace headrace::SIMT_SPACE {
namespace {

struct BloscLz {
  static constexpr u32 kMinToken = 2, kMinOutput = 1;
  using Guess = LzCut<512, 24>;
  static constexpr u32 kFew = 8;

  SIMT_DEVICE static u32 start(const LzStream& stream) {
    return stream.source_nbytes == 0 ? kTruncated : 0;
  }

  SIMT_DEVICE static bool is_far(const u8* p, u32 control, u32 low_at) {
    return (control & 31) == 31 && simt::load_constant(p + low_at) == 255;
  }

  template <class Run>
  SIMT_DEVICE static LzStep step(u32 token, const u8* p, u32 x, u32 end, const Run& run) {
    const u32 control = x++ ? token : token & 31;
    if (control < 32) {
      const u32 literals = control + 1;
      if (literals > end - x) return {0, kTruncated};
      return {literals, x + literals};
    }
    u32 match = (control >> 5) + 2;
    if (match == 9) match += run(p, x, end);
    if (x >= end) return {0, kTruncated};
    const u32 distance_nbytes = is_far(p, control, x) ? 3 : 1;
    if (distance_nbytes >= end - x) return {0, kTruncated};
    return {match, x + distance_nbytes};
  }

  SIMT_DEVICE static LzParts parts(const u8* p, u32 x, u32 end) {
    const u32 control = simt::load_constant(p + x) & (x ? 255 : 31);
    ++x;
    if (control < 32) return {x, control + 1, 0};
    if (control >> 5 == 7) add_run(p, x, end);
    u32 distance = (control & 31) << 8 | simt::load_constant(p + x);
    if (is_far(p, control, x))
      distance += u32{simt::load_constant(p + x + 1)} << 8 | simt::load_constant(p + x + 2);
    return {x, 0, distance + 1};
  }

  SIMT_DEVICE static bool allows(u32, u32, u32) { return true; }
};

}  // namespace

void blosclz_decode(Queue& queue, const DecodeBatch& batch) { decode_lz<BloscLz>(queue, batch); }

}  // namespace headrace::SIMT_SPACE
