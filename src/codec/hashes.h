#pragma once

// The checksums that codecs append or prepend.

#include <cstdint>

#include "base/bytes.h"
#include "base/crc32c.h"  // the one that stores need as well

namespace headrace {

std::uint32_t crc32(ConstBytes bytes);  // of gzip
std::uint32_t adler32(ConstBytes bytes);
// As HDF5 computes it: sums of big-endian 16-bit words.
std::uint32_t fletcher32(ConstBytes bytes);
// Bob Jenkins' lookup3, bytewise, as HDF5 has it.
std::uint32_t jenkins_lookup3(ConstBytes bytes, std::uint32_t initial);

}  // namespace headrace
