#pragma once

// Checksums as polynomials over GF(2), lowest power in the highest bit: a CRC without its initial
// and final inversion is the message times x^32, modulo the polynomial. So slices of a message can
// be taken apart: each counts times x^8 for each byte behind it.

#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

inline constexpr u32 kCrc32 = 0xedb88320;   // of gzip and PNG
inline constexpr u32 kCrc32c = 0x82f63b78;  // Castagnoli, RFC 3720
inline constexpr u32 kCrcOne = 0x80000000;

template <u32 kPolynomial>
SIMT_HOST_DEVICE constexpr u32 crc_multiply(u32 a, u32 b) {
  u32 product = 0;
  for (int i = 0; i < 32; ++i) {
    product ^= b & (0 - (a >> 31));
    a <<= 1;
    b = (b >> 1) ^ (kPolynomial & (0 - (b & 1)));
  }
  return product;
}

// Bytes that a warp takes at a time.
inline constexpr u32 kCrcStripe = 16 * simt::kWarp;

struct CrcTables {
  u32 power[64];       // x^8, squared so many times
  u32 stripe[4][256];  // byte i of a word times x^8 for each byte of a stripe
};

template <u32 kPolynomial>
constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  tables.power[0] = kCrcOne >> 8;
  for (int k = 1; k < 64; ++k)
    tables.power[k] = crc_multiply<kPolynomial>(tables.power[k - 1], tables.power[k - 1]);
  u32 stripe = kCrcOne;
  for (u32 k = 0; k < 32; ++k)
    if (kCrcStripe >> k & 1) stripe = crc_multiply<kPolynomial>(stripe, tables.power[k]);
  for (u32 i = 0; i < 4; ++i)
    for (u32 byte = 0; byte < 256; ++byte)
      tables.stripe[i][byte] = crc_multiply<kPolynomial>(byte << 8 * i, stripe);
  return tables;
}

SIMT_TABLE CrcTables kCrc32Tables = make_crc_tables<kCrc32>();
SIMT_TABLE CrcTables kCrc32cTables = make_crc_tables<kCrc32c>();

template <u32 kPolynomial>
SIMT_DEVICE const CrcTables& crc_tables() {
  static_assert(kPolynomial == kCrc32 || kPolynomial == kCrc32c);
  if constexpr (kPolynomial == kCrc32)
    return kCrc32Tables;
  else
    return kCrc32cTables;
}

// x^(8 nbytes), by all lanes of a warp.
template <u32 kPolynomial>
SIMT_DEVICE u32 crc_power(u64 nbytes) {
  const u32* const power = crc_tables<kPolynomial>().power;
  const unsigned lane = simt::lane_index();
  u32 product = nbytes >> lane & 1 ? power[lane] : kCrcOne;
  if (nbytes >> 32)
    product =
        crc_multiply<kPolynomial>(product, nbytes >> (lane + 32) & 1 ? power[lane + 32] : kCrcOne);
  SIMT_UNROLL
  for (unsigned d = 1; d < simt::kWarp; d <<= 1)
    product = crc_multiply<kPolynomial>(product, simt::shuffle_xor(product, d));
  return product;
}

// The CRC of two messages in a row, `nbytes` the second's, by all lanes of a warp.
template <u32 kPolynomial>
SIMT_DEVICE u32 crc_combine(u32 first, u32 second, u64 nbytes) {
  return crc_multiply<kPolynomial>(first, crc_power<kPolynomial>(nbytes)) ^ second;
}

}  // namespace headrace::SIMT_SPACE
