#pragma once

#include "kernels/ragged/chunk.h"
#include "kernels/ragged/utf8.h"

namespace headrace::SIMT_SPACE {

// By a whole warp, an element a lane, of 0 bytes where it has none: whether one of them is not what
// the format says. Texts of more than a slice are checked by all lanes.
SIMT_DEVICE bool is_bad(const RaggedFormat& format, const u8* data, u32 size) {
  bool bad = size % format.unit != 0;
  if (!format.utf8) return bad;
  if (0 < size && size <= kUtf8Slice) bad = bad || !is_utf8_slice(data, size, 0);
  for (u32 longs = simt::ballot(size > kUtf8Slice); longs != 0; longs &= longs - 1) {
    const unsigned lane = simt::trailing_zeros(longs);
    const u8* const text =
        reinterpret_cast<const u8*>(simt::shuffle(reinterpret_cast<u64>(data), lane));
    const u64 nbytes = simt::shuffle(size, lane);
    for (u64 from = u64{simt::lane_index()} * kUtf8Slice; from < nbytes;
         from += u64{simt::kWarp} * kUtf8Slice)
      bad = bad || !is_utf8_slice(text, nbytes, from);
  }
  return bad;
}

}  // namespace headrace::SIMT_SPACE
