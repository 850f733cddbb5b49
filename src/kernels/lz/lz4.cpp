#include "kernels/lz/decode.h"
#include "kernels/lz/dialects.h"
#include "kernels/lz/lz4_dialect.h"

namespace headrace::SIMT_SPACE {

void lz4_decode(Queue& queue, const DecodeBatch& batch) { decode_lz<Lz4>(queue, batch); }

}  // namespace headrace::SIMT_SPACE
