#pragma once

#include "base/bytes.h"

namespace headrace {

// Decodes raw LZ4 blocks, as fast as liblz4. That accepts a match of distance 0, which the format
// does not have, and gives whatever lay in the output before; here it is malformed. To look for one
// before liblz4 decodes costs as much as the decoding.
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md

// The whole block, which decodes to exactly dst.size() bytes; false otherwise.
bool lz4_decode_block(ConstBytes src, MutableBytes dst);

// The first dst.size() bytes of what the block decodes to; false when it has fewer.
bool lz4_decode_prefix(ConstBytes src, MutableBytes dst);

}  // namespace headrace
