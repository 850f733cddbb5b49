#pragma once

#include "kernels/kernels.h"
#include "simt/simt.h"

// Byte and bit transposes of whole chunks; src/codec/shuffle.h has the layouts. Item sizes of 1 to
// 255 bytes; sources and targets at any address, without overlap.
namespace headrace::SIMT_SPACE {

void shuffle(Queue& queue, const FilterBatch& batch);
void unshuffle(Queue& queue, const FilterBatch& batch);
void bit_shuffle(Queue& queue, const FilterBatch& batch);
void bit_unshuffle(Queue& queue, const FilterBatch& batch);

}  // namespace headrace::SIMT_SPACE
