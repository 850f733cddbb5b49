#include "kernels/lz.h"
#include "kernels/lz4_dialect.h"
#include "kernels/lz_decode.h"

namespace headrace::SIMT_SPACE {

void lz4_decode(Queue& queue, const DecodeBatch& batch) { decode_lz<Lz4>(queue, batch); }

}  // namespace headrace::SIMT_SPACE
