#pragma once

// The bits of a stream in shared memory, and headers of blocks.

#include "kernels/deflate/tables.h"
#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE::deflate {

// Bits are counted from the source rounded down to 16 bytes.
struct BitSource {
  const simt::Quad* quads;
  u64 quad_count;
  u64 begin;
  u64 end;

  SIMT_DEVICE BitSource(const u8* source, u64 nbytes) {
    const u64 skip = reinterpret_cast<std::uintptr_t>(source) & 15;
    quads = reinterpret_cast<const simt::Quad*>(source - skip);
    quad_count = (skip + nbytes + 15) / 16;
    begin = 8 * skip;
    end = begin + 8 * nbytes;
  }
  SIMT_DEVICE u8 byte(u64 bit) const {
    return simt::load_constant(reinterpret_cast<const u8*>(quads) + bit / 8);
  }
};

// The next bits of a source; zeros follow its last 16 bytes. The first staged bit is one of the
// first 128.
template <unsigned kWords>
struct Stage {
  static_assert(kWords % 4 == 0);
  alignas(16) u32 words[kWords];

  SIMT_DEVICE void load(const BitSource& source, u64 bit, unsigned thread, unsigned threads) {
    const u64 first = bit / 128;
    simt::Quad* quads = reinterpret_cast<simt::Quad*>(words);
    SIMT_UNROLL
    for (unsigned i = thread; i < kWords / 4; i += threads)
      quads[i] = first + i < source.quad_count ? simt::load_constant(source.quads + first + i)
                                               : simt::Quad{0, 0, 0, 0};
  }
  SIMT_DEVICE u32 window(u32 bit) const {
    return simt::funnel_right(words[bit / 32], words[bit / 32 + 1], bit);
  }
};

enum class BlockType : u32 { stored, fixed, dynamic };

struct BlockHeader {
  u32 last;
  BlockType type;
  u32 end;  // the bit behind it
  Fault fault;
};

// Lengths of both codes, one behind the other.
struct CodeLengths {
  u8 literals[kLiteralCodes];
  u8 distances[kDistanceCodes];
};

using CountTable = Huffman<CountCodes, 7>;

// For one warp: the lengths that a dynamic block begins with, from bit `at` on.
template <class Stage>
SIMT_DEVICE Fault
read_code_lengths(const Stage& stage, u32& at, CodeLengths& lengths, CountTable& table) {
  const unsigned lane = simt::lane_index();
  const u32 counts = stage.window(at);
  const u32 literals = (counts & 31) + 257, distances = (counts >> 5 & 31) + 1;
  const u32 count_codes = (counts >> 10 & 15) + 4;
  at += 14;
  if (literals > kMaxLiteralCodes || distances > kMaxDistanceCodes) return Fault::malformed;

  u8* const all = lengths.literals;
  for (unsigned i = lane; i < sizeof(CodeLengths); i += simt::kWarp) all[i] = 0;
  simt::sync_warp();
  // They lie where the code lengths go until the table is made.
  if (lane < count_codes) all[kCountCodeOrder[lane]] = stage.window(at + 3 * lane) & 7;
  simt::sync_warp();
  at += 3 * count_codes;
  if (!table.order(all)) return Fault::malformed;
  table.fill(lane, simt::kWarp);
  simt::sync_warp();
  if (lane < kCountCodes) all[lane] = 0;
  simt::sync_warp();

  // All lanes follow the chain; each writes its share of a run.
  const u32 total = literals + distances;
  u32 last = 0;
  for (u32 have = 0; have < total;) {
    const u32 window = stage.window(at);
    const Code code = table.root[window & ((1u << CountTable::kRootBits) - 1)];
    at += code_total_bits(code);
    if (code & kEnd && have == 0) return Fault::malformed;
    if (!(code & kEnd)) last = code & kLiteral ? code_base(code) : 0;
    const u32 run = code & kLiteral ? 1 : code_value(code, window);
    if (run > total - have) return Fault::malformed;
    for (u32 i = have + lane; i < have + run; i += simt::kWarp)
      all[i < literals ? i : i - literals + kLiteralCodes] = static_cast<u8>(last);
    have += run;
  }
  simt::sync_warp();
  return lengths.literals[kEndOfBlock] ? Fault::none : Fault::malformed;
}

// For one warp.
template <class Stage>
SIMT_DEVICE BlockHeader
read_block_header(const Stage& stage, u32 at, CodeLengths& lengths, CountTable& table) {
  const u32 bits = stage.window(at);
  BlockHeader header{bits & 1, static_cast<BlockType>(bits >> 1 & 3), at + 3, Fault::none};
  if (header.type == BlockType::dynamic) {
    header.fault = read_code_lengths(stage, header.end, lengths, table);
  } else if (header.type == BlockType::fixed) {
    for (unsigned s = simt::lane_index(); s < kLiteralCodes; s += simt::kWarp)
      lengths.literals[s] = static_cast<u8>(fixed_literal_bits(s));
    lengths.distances[simt::lane_index()] = kFixedDistanceBits;
    simt::sync_warp();
  } else if (header.type != BlockType::stored) {
    header.fault = Fault::malformed;
  }
  return header;
}

}  // namespace headrace::SIMT_SPACE::deflate
