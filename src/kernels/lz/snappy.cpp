// Snappy, raw: https://github.com/google/snappy/blob/main/format_description.txt

#include "kernels/common/access.h"
#include "kernels/lz/decode.h"
#include "kernels/lz/dialects.h"

namespace headrace::SIMT_SPACE {
namespace {

struct Snappy {
  static constexpr u32 kMinToken = 2, kMinOutput = 1;
  using Guess = LzCut<256, 16>;
  static constexpr u32 kFew = 3;

  // After the decoded size: 7 bits a byte, lowest first, while the eighth is set.
  SIMT_DEVICE static u32 start(const LzStream& stream) {
    u64 size = 0;
    for (u32 x = 0; x < 5; ++x) {
      if (x >= stream.source_nbytes) return kTruncated;
      const u32 byte = simt::load_constant(stream.source + x);
      size |= u64{byte & 127} << 7 * x;
      if (byte < 128) return size == stream.target_nbytes ? x + 1 : kWrongSize;
    }
    return kMalformed;
  }

  // Of n bytes, 1 to 4; no loop, which the compiler would unroll at the price of registers.
  SIMT_DEVICE static u32 load_le(const u8* p, u32 n) {
    return load_word(p) & ~u32{0} >> (32 - 8 * n);
  }

  // A token is a literal and the copy behind it, or one of them: half as many as there are tags.
  SIMT_DEVICE static bool is_literal(u32 tag) { return (tag & 3) == 0; }
  // Bytes of a tag and what belongs to it.
  SIMT_DEVICE static u32 head_nbytes(u32 tag) {
    const u32 kind = tag & 3, n = tag >> 2;
    if (kind) return kind == 3 ? 5 : kind + 1;
    return n < 60 ? 1 : n - 58;
  }
  // From 2^31 on, lengths are told apart no more.
  SIMT_DEVICE static u32 literal_nbytes(const u8* p, u32 tag, u32 x) {
    const u32 n = tag >> 2, value = n < 60 ? n : load_le(p + x + 1, n - 59);
    return value < kMaxStream ? value + 1 : kMaxStream;
  }
  SIMT_DEVICE static u32 copy_nbytes(u32 tag) {
    return (tag & 3) == 1 ? (tag >> 2 & 7) + 4 : (tag >> 2) + 1;
  }
  SIMT_DEVICE static u32 distance(const u8* p, u32 tag, u32 x) {
    if ((tag & 3) == 1) return (tag >> 5) << 8 | simt::load_constant(p + x + 1);
    return load_le(p + x + 1, (tag & 3) == 2 ? 2 : 4);
  }

  template <class Run>
  SIMT_DEVICE static LzStep step(u32 tag, const u8* p, u32 x, u32 end, const Run&) {
    u32 head = head_nbytes(tag), literals = 0;
    if (head > end - x) return {0, kTruncated};
    if (is_literal(tag)) {
      literals = literal_nbytes(p, tag, x);
      if (literals > end - x - head) return {0, kTruncated};
      x += head + literals;
      if (x == end) return {literals, x};
      tag = simt::load_constant(p + x);
      if (is_literal(tag)) return {literals, x};
      head = head_nbytes(tag);
      if (head > end - x) return {0, kTruncated};
    }
    return {literals + copy_nbytes(tag), x + head};
  }

  SIMT_DEVICE static LzParts parts(const u8* p, u32 x, u32 end) {
    LzParts parts{x, 0, 0};
    u32 tag = simt::load_constant(p + x);
    if (is_literal(tag)) {
      parts.literals = x + head_nbytes(tag);
      parts.literal_nbytes = literal_nbytes(p, tag, x);
      x = parts.literals + parts.literal_nbytes;
      if (x == end) return parts;
      tag = simt::load_constant(p + x);
      if (is_literal(tag)) return parts;
    }
    parts.distance = distance(p, tag, x);
    return parts;
  }

  SIMT_DEVICE static bool allows(u32, u32, u32) { return true; }
};

}  // namespace

void snappy_decode(Queue& queue, const DecodeBatch& batch) { decode_lz<Snappy>(queue, batch); }

}  // namespace headrace::SIMT_SPACE
