#pragma once

// Adaptive entropy coding of CCSDS 121.0-B by libaec, which HDF5's szip and GRIB 2 use.

#include <cstdint>

#include "base/bytes.h"

namespace headrace {

struct AecStream {
  unsigned bits_per_sample = 8;
  unsigned block_size = 8;  // samples
  unsigned rsi = 1;         // blocks between reference samples
  bool msb = false;         // samples come with the most significant byte first
  bool preprocessed = false;
  bool restricted = false;
  bool padded = false;  // each reference interval begins a byte
};

// True where this build has libaec.
bool has_aec();
// How many bytes decode_aec makes of a sample.
std::size_t aec_sample_nbytes(unsigned bits_per_sample);
// Fills dst, whole samples; `corrupt` when the stream gives less. It may hold more.
void decode_aec(const AecStream& stream, ConstBytes src, MutableBytes dst);

}  // namespace headrace
