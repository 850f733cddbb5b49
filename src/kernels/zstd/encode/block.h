#pragma once

// The headers of an encoded block's parts.

#include "kernels/zstd/encode/huffman_codes.h"
#include "kernels/zstd/encode/stages.h"

namespace headrace::SIMT_SPACE::zstd {

// Literals_Section_Header; one stream of Huffman codes where there are few literals, else four.
enum class LiteralForm : u8 { raw = 0, huffman = 2 };
struct LiteralHeader {
  u32 nbytes;
  u64 bits;
};
SIMT_DEVICE LiteralHeader literal_header(LiteralForm form, u32 literals, u32 encoded_nbytes) {
  const u64 type = static_cast<u64>(form);
  if (form == LiteralForm::raw) {
    if (literals < 32) return {1, type | u64{literals} << 3};
    if (literals < 4096) return {2, type | 1 << 2 | u64{literals} << 4};
    return {3, type | 3 << 2 | u64{literals} << 4};
  }
  if (literals < 256) return {3, type | u64{literals} << 4 | u64{encoded_nbytes} << 14};
  if (literals < 1024) return {3, type | 1 << 2 | u64{literals} << 4 | u64{encoded_nbytes} << 14};
  if (literals < 16384) return {4, type | 2 << 2 | u64{literals} << 4 | u64{encoded_nbytes} << 18};
  return {5, type | 3 << 2 | u64{literals} << 4 | u64{encoded_nbytes} << 22};
}

// How the codes of sequences are described.
enum class TableMode : u8 { predefined, constant, described };  // as the format numbers them

SIMT_DEVICE u32 sequences_header_nbytes(u32 n) {
  if (n == 0) return 1;
  return (n < 128 ? 1 : n < 0x7f00 ? 2 : 3) + 1;
}
// By one thread; of a block with sequences.
SIMT_DEVICE void put_sequences_header(u8* out, u32 n, const TableMode (&modes)[3]) {
  u32 at = 0;
  if (n < 128) {
    out[at++] = static_cast<u8>(n);
  } else if (n < 0x7f00) {
    out[at++] = static_cast<u8>(128 + (n >> 8));
    out[at++] = static_cast<u8>(n);
  } else {
    out[at++] = 255;
    out[at++] = static_cast<u8>(n - 0x7f00);
    out[at++] = static_cast<u8>((n - 0x7f00) >> 8);
  }
  out[at] = static_cast<u8>(static_cast<u32>(modes[kLiteralLengths]) << 6 |
                            static_cast<u32>(modes[kOffsets]) << 4 |
                            static_cast<u32>(modes[kMatchLengths]) << 2);
}

}  // namespace headrace::SIMT_SPACE::zstd
