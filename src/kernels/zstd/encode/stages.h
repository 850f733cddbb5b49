#pragma once

// What the stages of the zstd encoder hand to each other: see frames.cpp.

#include "kernels/common/encode_jobs.h"
#include "kernels/zstd/bits.h"
#include "kernels/zstd/codes.h"
#include "kernels/zstd/encode/frames.h"

namespace headrace::SIMT_SPACE::zstd {

inline constexpr u32 kMinEncodedMatch = 4;  // of repeats of an offset; others are longer
inline constexpr u32 kMaxEncodedBlock = 128 * 1024;
inline constexpr u32 kStreams = 4;
inline constexpr u32 kCodeSymbols = 64;
// What the entropy stage may write beyond a block's size before it sees that it gains nothing.
inline constexpr u32 kEncodedSlack = 512;

// A frame to be, of blocks of the same size but the last. An empty one has an empty block.
using FrameJob = EncodeJob;  // whose items are blocks

struct BlockInput {
  const u8* source;
  u32 nbytes;
};
SIMT_DEVICE BlockInput block_input(const FrameJob& job, u64 block, u32 block_nbytes) {
  const u64 at = (block - job.first) * block_nbytes, left = job.nbytes - at;
  return {job.source + at, left < block_nbytes ? static_cast<u32>(left) : block_nbytes};
}

// Three numbers below 2^20.
struct Triple {
  u32 a, b, c;
};
SIMT_DEVICE u64 pack(const Triple& t) { return u64{t.a} << 40 | u64{t.b} << 20 | t.c; }
SIMT_DEVICE Triple unpack(u64 v) {
  return {static_cast<u32>(v >> 40),
          static_cast<u32>(v >> 20) & 0xfffff,
          static_cast<u32>(v) & 0xfffff};
}

// A sequence as it is coded, with the codes of its lengths; that of the offset is its highest bit.
struct Sequence {
  u32 literals, match, offset_value;
  u32 literals_code, match_code;
};
// Blocks have 128 KiB at most, and every sequence of at least one match copies 4 bytes or more.
SIMT_DEVICE u64 pack(const Sequence& s) {
  return u64{s.literals} << 47 | u64{s.match} << 30 | u64{s.offset_value} << 12 |
         s.literals_code << 6 | s.match_code;
}
SIMT_DEVICE Sequence unpack_sequence(u64 v) {
  const u32 low = static_cast<u32>(v);
  return {static_cast<u32>(v >> 47),
          static_cast<u32>(v >> 30) & 0x1ffff,
          static_cast<u32>(v >> 12) & 0x3ffff,
          low >> 6 & 63,
          low & 63};
}

struct BlockStatistics {
  u32 literals, sequences;
  u32 literal_counts[kStreams][256];  // of each stream; when there is one, of the first
  u32 code_counts[3][kCodeSymbols];   // of literal lengths, offsets, match lengths
};

// Of each stream but the last. Few literals are one stream.
SIMT_DEVICE u32 stream_nbytes(u32 literals) {
  return literals < 256 ? literals : (literals + kStreams - 1) / kStreams;
}

enum class BlockKind : u8 { raw, constant, compressed };  // as the format numbers them
struct EncodedBlock {
  u32 nbytes;  // behind the block header
  BlockKind kind;
};
struct BlockPlace {
  u64 at;  // of the block header, in the target
  bool fits;
};

// Device memory of a slab of blocks, and how its parts are found.
struct EncodeStages {
  EncodeStages(Queue& queue, u64 blocks, u32 block_nbytes, u32 segment_nbytes);

  u32 block_nbytes, segment_nbytes;
  Scratch<u64> sequences;        // of matches: start, size, offset; then as they are coded
  Scratch<u32> sequence_counts;  // of each segment
  Scratch<u8> literals;
  Scratch<BlockStatistics> statistics;
  Scratch<u8> encoded;
  Scratch<EncodedBlock> results;
};

// Views of it that kernels take.
struct SequencePool {
  u64* sequences;
  u32* counts;
  u32 block_nbytes, segment_nbytes;

  SIMT_HOST_DEVICE u32 segments_per_block() const {
    return (block_nbytes + segment_nbytes - 1) / segment_nbytes;
  }
  SIMT_HOST_DEVICE u64 room() const {
    return (block_nbytes < segment_nbytes ? block_nbytes : segment_nbytes) / kMinEncodedMatch + 1;
  }
  SIMT_DEVICE u64* of_segment(u64 segment) const { return sequences + segment * room(); }
  // Where the sequences of a block are kept in one row: none of them later than in its segment's,
  // so the row can take their place from the first sequence on.
  SIMT_DEVICE u64* of_block(u64 block) const { return of_segment(block * segments_per_block()); }
};

// The code of a length: the last of kLiteralLengthCodes or kMatchLengthCodes whose baseline is not
// above it. Reckoned, since a search takes six loads one after the other.
SIMT_DEVICE u32 literal_length_code(u32 n) {
  if (n < 16) return n;
  if (n >= 64) return 19 + highest_bit(n);
  if (n < 24) return 16 + (n - 16) / 2;
  if (n < 32) return 20 + (n - 24) / 4;
  return n < 48 ? 22 + (n - 32) / 8 : 24;
}
SIMT_DEVICE u32 match_length_code(u32 nbytes) {
  const u32 n = nbytes - 3;
  if (n < 32) return n;
  if (n >= 128) return 36 + highest_bit(n);
  if (n < 40) return 32 + (n - 32) / 2;
  if (n < 48) return 36 + (n - 40) / 4;
  if (n < 64) return 38 + (n - 48) / 8;
  return n < 96 ? 40 + (n - 64) / 16 : 42;
}
struct SequenceCodes {
  u32 code[3];
};
SIMT_DEVICE SequenceCodes codes_of(u32 literals, u32 match, u32 offset_value) {
  SequenceCodes codes;
  codes.code[kLiteralLengths] = literal_length_code(literals);
  codes.code[kOffsets] = highest_bit(offset_value);
  codes.code[kMatchLengths] = match_length_code(match);
  return codes;
}

using FrameJobs = Work<FrameJob>;
SequencePool pool_of(const EncodeStages& stages);

// 1. Matches. How many segments a device takes at once.
u64 sequences_at_once(const Queue&);
void find_sequences(Queue&, const FrameJobs&, u64 blocks, const EncodeStages&);
// 2. Literals apart, offsets by the format's numbers, and how often each symbol occurs.
void split_blocks(Queue&, const FrameJobs&, u64 blocks, const EncodeStages&);
// 3. Entropy coding.
void encode_blocks(Queue&, const FrameJobs&, u64 blocks, const EncodeStages&);

}  // namespace headrace::SIMT_SPACE::zstd
