#include "kernels/blosc/decode.h"
#include "kernels/blosc/encode.h"
#include "kernels/checksum/verify.h"
#include "kernels/deflate/decode.h"
#include "kernels/filters/numcodecs.h"
#include "kernels/filters/shuffle.h"
#include "kernels/kernels.h"
#include "kernels/lz/dialects.h"
#include "kernels/lz/lz4_encode.h"
#include "kernels/place/copy.h"
#include "kernels/place/gather.h"
#include "kernels/place/placements.h"
#include "kernels/place/rows.h"
#include "kernels/ragged/pack.h"
#include "kernels/ragged/parse.h"
#include "kernels/zstd/decode.h"
#include "kernels/zstd/encode/frames.h"
#include "simt/simt.h"

namespace headrace {

#if defined(__CUDACC__) || defined(__HIP__)
const Kernels& gpu_kernels() {
#else
const Kernels& host_kernels() {
#endif
  using namespace SIMT_SPACE;
  static constexpr Kernels kKernels{
      .zstd = decode_zstd,
      .lz4 = lz4_decode,
      .snappy = snappy_decode,
      .blosclz = blosclz_decode,
      .deflate = deflate_decode,
      .zlib = zlib_decode,
      .gzip = gzip_decode,
      .blosc = blosc_decode,
      .zstd_headers = read_zstd_headers,
      .blosc_headers = read_blosc_headers,
      .lz4_encode = lz4_encode,
      .zstd_encode = zstd_encode,
      .blosc_encode = blosc_encode,
      .verify = verify,
      .unshuffle = unshuffle,
      .shuffle = shuffle,
      .bit_unshuffle = bit_unshuffle,
      .bit_shuffle = bit_shuffle,
      .swap_bytes = swap_bytes,
      .delta = delta,
      .fixed_scale_offset = fixed_scale_offset,
      .cast = cast,
      .packbits = packbits,
      .parse_ragged = parse_ragged,
      .ragged_offsets = ragged_offsets,
      .ragged_values = ragged_values,
      .place = place,
      .copy = copy_frames,
      .gather = gather,
      .count_rows = count_rows,
      .gather_rows = gather_rows,
      .gather_rows_dense = gather_rows_dense,
      .sum_rows_dense = sum_rows_dense,
  };
  return kKernels;
}

}  // namespace headrace
