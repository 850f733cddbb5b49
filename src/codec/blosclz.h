#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace headrace {

// Decodes a BloscLZ stream, the inner codec 0 of blosc. Gives the bytes written, at most
// dst.size(); 0 for a stream that is malformed or does not fit.
std::size_t blosclz_decode(ConstBytes src, MutableBytes dst);

}  // namespace headrace
