#pragma once

// Numbers of RFC 1951 (https://www.rfc-editor.org/rfc/rfc1951), and what a code means, in one word.

#include "simt/simt.h"

namespace headrace::SIMT_SPACE::deflate {

inline constexpr unsigned kMaxCodeBits = 15;
inline constexpr unsigned kLiteralCodes =
    288;  // literals, end of block, lengths; the last 2 invalid
inline constexpr unsigned kDistanceCodes = 32;  // the last 2 invalid
inline constexpr unsigned kCountCodes = 19;     // the code that code lengths are written in
inline constexpr unsigned kMaxLiteralCodes = 286;
inline constexpr unsigned kMaxDistanceCodes = 30;
inline constexpr unsigned kEndOfBlock = 256;
inline constexpr unsigned kMinMatch = 3;
inline constexpr unsigned kMaxMatch = 258;
inline constexpr unsigned kWindow = 32 * 1024;
// Of a dynamic block: counts, 19 lengths of 3 bits, then at most 316 lengths of 7 + 7 bits.
inline constexpr unsigned kMaxHeaderBits = 17 + 19 * 3 + 316 * 14;

// A code of `bits` bits and `extra` bits behind it.
//   0..4    bits + extra
//   5..8    bits
//   9..12   kinds
//   16..31  a literal; the base of a length or distance
using Code = u32;
inline constexpr Code kLiteral = 1 << 9;
inline constexpr Code kEnd = 1 << 10;
inline constexpr Code kInvalid = 1 << 11;
inline constexpr Code kLong = 1 << 12;  // more bits than the table looks at

SIMT_DEVICE Code make_code(u32 bits, u32 extra, u32 base, u32 kind = 0) {
  return (bits + extra) | bits << 5 | kind | base << 16;
}
SIMT_DEVICE u32 code_total_bits(Code code) { return code & 31; }
SIMT_DEVICE u32 code_bits(Code code) { return code >> 5 & 15; }
SIMT_DEVICE u32 code_base(Code code) { return code >> 16; }
// Base and extra bits; `window` begins with the code.
SIMT_DEVICE u32 code_value(Code code, u32 window) {
  return code_base(code) + ((window & ~(~0u << code_total_bits(code))) >> code_bits(code));
}

struct LiteralCodes {
  static constexpr unsigned kCount = kLiteralCodes;
  static constexpr bool kMayBeIncomplete = true;
  SIMT_DEVICE static Code make(u32 symbol, u32 bits) {
    if (symbol < kEndOfBlock) return make_code(bits, 0, symbol, kLiteral);
    if (symbol == kEndOfBlock) return make_code(bits, 0, 0, kEnd);
    if (symbol >= kMaxLiteralCodes) return make_code(bits, 0, 0, kInvalid);
    const u32 i = symbol - kEndOfBlock - 1;
    if (i < 8) return make_code(bits, 0, kMinMatch + i);
    if (i == 28) return make_code(bits, 0, kMaxMatch);
    const u32 extra = i / 4 - 1;
    return make_code(bits, extra, kMinMatch + ((4 + i % 4) << extra));
  }
};

struct DistanceCodes {
  static constexpr unsigned kCount = kDistanceCodes;
  static constexpr bool kMayBeIncomplete = true;
  SIMT_DEVICE static Code make(u32 symbol, u32 bits) {
    if (symbol >= kMaxDistanceCodes) return make_code(bits, 0, 0, kInvalid);
    if (symbol < 4) return make_code(bits, 0, 1 + symbol);
    const u32 extra = symbol / 2 - 1;
    return make_code(bits, extra, 1 + ((2 + symbol % 2) << extra));
  }
};

// A length (kLiteral), a repeat of the one before (kEnd), or a run of zeros.
struct CountCodes {
  static constexpr unsigned kCount = kCountCodes;
  static constexpr bool kMayBeIncomplete = false;
  SIMT_DEVICE static Code make(u32 symbol, u32 bits) {
    if (symbol < 16) return make_code(bits, 0, symbol, kLiteral);
    if (symbol == 16) return make_code(bits, 2, 3, kEnd);
    return symbol == 17 ? make_code(bits, 3, 3) : make_code(bits, 7, 11);
  }
};
// The order in which their lengths are written.
SIMT_TABLE u8 kCountCodeOrder[kCountCodes] = {
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

SIMT_DEVICE u32 fixed_literal_bits(u32 symbol) {
  return symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
}
inline constexpr u32 kFixedDistanceBits = 5;

}  // namespace headrace::SIMT_SPACE::deflate
