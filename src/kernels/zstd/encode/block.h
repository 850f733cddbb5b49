#pragma once

// The parts of an encoded block, and the bits that a warp writes side by side.

#include "kernels/zstd/encode/huffman_codes.h"
#include "kernels/zstd/encode/stages.h"

namespace headrace::SIMT_SPACE::zstd {

// A stream of bits by all lanes of a warp, the lowest of a byte first. `words` is shared memory of
// the warp.
class WarpBits {
 public:
  static constexpr u32 kWords = 80;  // for 78 bits a lane

  SIMT_DEVICE WarpBits(u32* words, u8* out) : words_(words), out_(out) { clear(0); }

  // Lane by lane, from lane 0 on, `low` before `high`; at most 78 bits each.
  SIMT_DEVICE void put(u64 low, u32 low_bits, u32 high = 0, u32 high_bits = 0) {
    const u32 bits = low_bits + high_bits, through = simt::inclusive_sum(bits);
    const u32 at = pending_ + through - bits;
    add(at, low);
    if (high_bits) add(at + low_bits, high);
    simt::sync_warp();
    const u32 end = pending_ + simt::shuffle(through, simt::kWarp - 1);
    const u8* const bytes = reinterpret_cast<const u8*>(words_);
    for (u32 i = simt::lane_index(); i < end / 8; i += simt::kWarp) out_[nbytes_ + i] = bytes[i];
    const u32 rest = bytes[end / 8];
    simt::sync_warp();
    nbytes_ += end / 8;
    pending_ = end % 8;
    clear(rest);
  }
  // The bit that says where the stream ends, which is its beginning to the decoder.
  SIMT_DEVICE void finish() {
    const u32 one = simt::lane_index() == 0;
    put(one, one);
    if (pending_ == 0) return;
    if (simt::lane_index() == 0) out_[nbytes_] = static_cast<u8>(words_[0]);
    ++nbytes_;
    pending_ = 0;
  }
  SIMT_DEVICE u32 nbytes() const { return nbytes_; }

 private:
  SIMT_DEVICE void clear(u32 first) {
    for (u32 i = simt::lane_index(); i < kWords; i += simt::kWarp) words_[i] = i ? 0 : first;
    simt::sync_warp();
  }
  SIMT_DEVICE void add(u32 at, u64 value) {
    const u32 shift = at % 32;
    const u32 parts[3] = {static_cast<u32>(value << shift),
                          static_cast<u32>(value << shift >> 32),
                          shift ? static_cast<u32>(value >> (64 - shift)) : 0};
    for (u32 i = 0; i < 3; ++i)
      if (parts[i]) simt::atomic_or(words_ + at / 32 + i, parts[i]);
  }

  u32* words_;
  u8* out_;
  u32 nbytes_ = 0;
  u32 pending_ = 0;  // bits in words_ of a byte that is not full
};

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
