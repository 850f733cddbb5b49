#pragma once

// Well-formed UTF-8 (RFC 3629), of a text in slices that threads take side by side. Who has a slice
// checks the characters that begin in it, to their ends, and that another one begins there.

#include "kernels/common/access.h"

namespace headrace::SIMT_SPACE {

inline constexpr u32 kUtf8Slice = 64;  // bytes

SIMT_DEVICE bool is_within(u32 byte, u32 least, u32 most) { return byte - least <= most - least; }
SIMT_DEVICE bool is_continuation(u32 byte) { return (byte & 0xc0) == 0x80; }

// Of the character at `text`; 0 when it is none within `nbytes`, at least 1.
SIMT_DEVICE u32 utf8_nbytes(const u8* text, u64 nbytes) {
  const u32 first = text[0];
  if (first < 0x80) return 1;
  if (!is_within(first, 0xc2, 0xf4)) return 0;
  const u32 n = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (n > nbytes) return 0;
  // No overlong forms, no surrogates, nothing beyond U+10FFFF.
  const u32 least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const u32 most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (!is_within(text[1], least, most)) return 0;
  for (u32 i = 2; i < n; ++i)
    if (!is_continuation(text[i])) return 0;
  return n;
}

// Of the slice that begins at `from`, which lies within the text.
SIMT_DEVICE bool is_utf8_slice(const u8* text, u64 nbytes, u64 from) {
  const u64 end = nbytes - from < kUtf8Slice ? nbytes : from + kUtf8Slice;
  u64 at = from;
  if (from > 0)
    while (at < end && is_continuation(text[at])) ++at;  // of a character of the slice before
  while (at < end) {
    if (nbytes - at >= 4 && (load_word(text + at) & 0x80808080u) == 0) {
      at += 4;
      continue;
    }
    const u32 n = utf8_nbytes(text + at, nbytes - at);
    if (n == 0) return false;
    at += n;
  }
  return at == nbytes || !is_continuation(text[at]);
}

}  // namespace headrace::SIMT_SPACE
