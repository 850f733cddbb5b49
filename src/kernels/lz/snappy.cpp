// Snappy, raw: https://github.com/google/snappy/blob/main/format_description.txt

#include "kernels/lz/decode.h"
#include "kernels/lz/dialects.h"

namespace headrace::SIMT_SPACE {
namespace {

struct Snappy {
  static constexpr u32 kMinToken = 2, kMinOutput = 1;
  using Guess = LzCut<256, 16>;

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

  SIMT_DEVICE static u32 load_le(const u8* p, u32 n) {
    u32 value = 0;
    for (u32 i = 0; i < n; ++i) value |= u32{simt::load_constant(p + i)} << 8 * i;
    return value;
  }

  // Bytes of the token before its literals.
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

  template <class Run>
  SIMT_DEVICE static LzStep step(u32 tag, const u8* p, u32 x, u32 end, const Run&) {
    const u32 head = head_nbytes(tag);
    if (head > end - x) return {0, kTruncated};
    if ((tag & 3) == 1) return {(tag >> 2 & 7) + 4, x + head};
    if (tag & 3) return {(tag >> 2) + 1, x + head};
    const u32 literals = literal_nbytes(p, tag, x);
    if (literals > end - x - head) return {0, kTruncated};
    return {literals, x + head + literals};
  }

  SIMT_DEVICE static LzParts parts(const u8* p, u32 x, u32) {
    const u32 tag = simt::load_constant(p + x), kind = tag & 3;
    if (kind == 0) return {x + head_nbytes(tag), literal_nbytes(p, tag, x), 0};
    if (kind == 1) return {x, 0, (tag >> 5) << 8 | simt::load_constant(p + x + 1)};
    return {x, 0, load_le(p + x + 1, kind == 2 ? 2 : 4)};
  }

  SIMT_DEVICE static bool allows(u32, u32, u32) { return true; }
};

}  // namespace

void snappy_decode(Queue& queue, const DecodeBatch& batch) { decode_lz<Snappy>(queue, batch); }

}  // namespace headrace::SIMT_SPACE
