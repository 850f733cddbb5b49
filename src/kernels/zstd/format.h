#pragma once

// What the stages of the zstd decoder hand to each other. The format is RFC 8878; its terms (frame,
// block, literals, sequence, repeat offset) are used as it does, except that `Source` stands for
// the encoded bytes of one target, which may hold several frames.

#include "kernels/common/fault.h"
#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE::zstd {

inline constexpr u32 kMaxBlock = 128 * 1024;
inline constexpr u32 kMinMatch = 3;
inline constexpr u32 kUnknown = ~u32{0};

struct Source {
  const u8* data;
  u8* target;
  u32 nbytes;
  u32 target_nbytes;
  u32 chunk;  // index of its fault
  u32 first_block, end_block;
  u32 first_frame, end_frame;
  Fault fault;  // found while parsing: then it has no blocks
};

struct Frame {  // with at least one block that holds something
  u32 source;
  u32 first_block, end_block;
  u32 content_nbytes;  // or kUnknown
  u32 checksum;
  bool has_checksum;
};

enum class Literals : u8 { stored, repeated, huffman };

struct Block {
  u64 records;   // its first one in the pool
  u64 literals;  // in the pool; stored ones stay in the source
  u32 source, frame;
  u32 end;  // in the source, as all offsets here
  u32 literals_at, literals_nbytes, literal_count;
  u32 huffman_at, huffman_end;  // bytes that begin with the Huffman table
  u32 sequence_count;
  u32 modes_at;
  // Modes and end of the block that defines the table, for literal lengths, offsets, match lengths.
  u32 tables_at[3], tables_end[3];
  u32 record_count;
  u32 nbytes;  // decoded; for blocks with sequences the least it can be
  Literals literal_kind;
  u8 streams;
};

// Repeat offsets as a function of those at the start of the block: a value, or
// kSymbol | slot << 28 | k for "that slot minus k". Such functions compose, so a scan over blocks
// resolves what the format makes serial.
inline constexpr u32 kSymbol = 0x80000000;
struct RepeatOffsets {
  u32 slot[3];
};
SIMT_HOST_DEVICE u32 slot_of(u32 symbol) { return symbol >> 28 & 3; }
SIMT_HOST_DEVICE u32 minus_of(u32 symbol) { return symbol & 0xfffffff; }
SIMT_HOST_DEVICE u32 select(const RepeatOffsets& offsets, u32 slot) {
  return slot == 0 ? offsets.slot[0] : slot == 1 ? offsets.slot[1] : offsets.slot[2];
}
SIMT_HOST_DEVICE RepeatOffsets unchanged() {
  return {{kSymbol, kSymbol | 1u << 28, kSymbol | 2u << 28}};
}
SIMT_HOST_DEVICE u32 resolve(u32 offset, const RepeatOffsets& before) {
  if (!(offset & kSymbol)) return offset;
  const u32 from = select(before, slot_of(offset)), minus = minus_of(offset);
  return from & kSymbol ? from + minus : from - minus;
}
SIMT_HOST_DEVICE RepeatOffsets compose(const RepeatOffsets& after, const RepeatOffsets& before) {
  return {{resolve(after.slot[0], before),
           resolve(after.slot[1], before),
           resolve(after.slot[2], before)}};
}

// What decoding the sequences of a block found out.
struct BlockResult {
  u32 nbytes;
  RepeatOffsets repeats;
  // Matches are in bounds if at least `reach` bytes of the frame lie before the block and each
  // initial repeat offset is within [least, most + bytes before the block].
  u32 reach;
  u32 least[3], most[3];
};

struct PlacedBlock {
  u32 start;              // in the target
  RepeatOffsets repeats;  // at its start
};

// A sequence: where its match starts in the block (18 bits), literals of the block used by then
// (18), offset (28). Lengths follow from neighbours, so that any tile of the output can be found by
// a binary search. A last record holds the size of the block and its literal count.
//
// Offsets from kSymbolicRecord stand for "repeat slot at the start of the block minus k".
using Record = u64;
inline constexpr u32 kSymbolicRecord = 0xfc00000;

SIMT_HOST_DEVICE Record make_record(u32 match_start, u32 literals, u32 offset) {
  return u64{match_start} << 46 | u64{literals} << 28 | offset;
}
SIMT_HOST_DEVICE u32 record_match(Record r) { return static_cast<u32>(r >> 46); }
SIMT_HOST_DEVICE u32 record_literals(Record r) { return static_cast<u32>(r >> 28) & 0x3ffff; }
SIMT_HOST_DEVICE u32 record_offset(Record r) { return static_cast<u32>(r) & 0xfffffff; }
SIMT_HOST_DEVICE u32 to_record_offset(u32 offset) {
  if (!(offset & kSymbol)) return offset;
  return kSymbolicRecord | slot_of(offset) << 20 | (minus_of(offset) & 0xfffff);
}
SIMT_HOST_DEVICE u32 match_offset(Record r, const RepeatOffsets& at_start) {
  const u32 offset = record_offset(r);
  if (offset < kSymbolicRecord) return offset;
  return select(at_start, offset >> 20 & 3) - (offset & 0xfffff);
}

}  // namespace headrace::SIMT_SPACE::zstd
