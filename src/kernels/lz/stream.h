#pragma once

// Byte-oriented LZ streams (LZ4, snappy, blosclz) on many threads:
//
// 1. parse.h finds the tokens of each stream, which is a chain: a token says where the next is.
//    Its result is a record a token: where its output begins, and where it is.
// 2. execute.h reads the tokens again, all at once, and makes the bytes.
//
// A dialect says what a token is:
//
//   kMinToken, kMinOutput   fewest bytes a token takes and gives, but for the last of a stream
//   Guess                   how its streams are cut where tokens are guessed: measured
//   kFew                    tokens that a repair of a group walks before it turns to the guesses
//                           of its segments: measured
//   start(stream)           position of the first token, or a bad end
//   step(token, p, x, end, run)
//                           how many bytes the token at x gives, and where the next one is: `end`
//                           after the last, kTruncated or kMalformed when there is none. `token`
//                           is the byte there, run(p, x, end) reads a run that begins behind it
//   parts(p, x, end)        what to do for a token whose step was good
//   allows(at, n, size)     whether a match of n bytes may begin at `at` of `size` bytes

#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// Sources and targets are smaller than this; sums of lengths saturate just below.
inline constexpr u32 kMaxStream = 0x7fffffff;

// Bad ends of a chain of tokens: beyond every position.
inline constexpr u32 kTruncated = ~u32{0};
inline constexpr u32 kMalformed = ~u32{0} - 1;
inline constexpr u32 kWrongSize = ~u32{0} - 2;

// How many segments of how many bytes a group has.
template <u32 segment_nbytes, u32 segments>
struct LzCut {
  static constexpr u32 kSegment = segment_nbytes, kSegments = segments,
                       kGroup = kSegment * kSegments;
};

struct LzStream {
  const u8* source;
  u8* target;
  u32 source_nbytes;
  u32 target_nbytes;
  u32 chunk;
  u32 first_group;  // of segments, in the parse
  u32 first_tile;   // of output, in the execution
};

struct alignas(8) LzRecord {
  u32 start;  // of the token's output; after the last token: target_nbytes
  u32 token;  // its position; after the last token: source_nbytes
};

struct LzStep {
  u32 nbytes;
  u32 next;
};

// Literals, then a match; either may be missing.
struct LzParts {
  u32 literals;  // their position
  u32 literal_nbytes;
  u32 distance;
};

// What the parse gives of a stream.
struct alignas(16) LzParsed {
  u64 first_record;
  u32 n_records;  // 0 when it is at fault
  u16 wave;
  u16 scouted;  // sparse.h has made the records, and makes the bytes
};

// Of a stream: one more than it can have tokens, of which the last may be shorter than others.
template <class Dialect>
SIMT_HOST_DEVICE u64 most_records(u64 source_nbytes, u64 target_nbytes) {
  const u64 of_source = source_nbytes / Dialect::kMinToken;
  const u64 of_target = target_nbytes / Dialect::kMinOutput;
  return (of_source < of_target ? of_source : of_target) + 2;
}

// Records of streams whose tokens are counted. Streams take room as they are counted, in any order,
// and nobody waits for the host to hear how much that is. Mostly it is far less than there could
// be, and all fit. Where they do not, they fill the pool again: streams of a wave have their
// records at the same time, and their bytes are made before the next wave's records are.
struct LzPool {
  LzRecord* records;  // of a wave, and behind them as many as one stream can have
  u64* taken;         // of all waves
  u64 of_wave;
};

// Of a stream; none if it is at fault.
struct LzRecords {
  LzRecord* first;
  u32 n;
};

// The streams that are decoded together, and the result of their parse.
struct LzBatch {
  const LzStream* streams;
  u32 n_streams;
  LzPool pool;
  LzParsed* parsed;  // of each stream
  u32* faults;
  bool any_scouts;  // else `parsed` is set by the parse only
  u32 wave = 0;

  // Whether the parse has nothing to do for a stream.
  SIMT_DEVICE bool is_scouted(u32 stream) const { return any_scouts && parsed[stream].scouted; }
  // Whether no stream is of this wave.
  SIMT_DEVICE bool is_done() const { return wave != 0 && *pool.taken <= wave * pool.of_wave; }
  // What the parse writes and the executors make bytes of; none of another wave.
  SIMT_DEVICE LzRecords records_of(u32 stream) const {
    const LzParsed of_stream = parsed[stream];
    const bool now = !of_stream.scouted && of_stream.wave == wave;
    return {pool.records + of_stream.first_record, now ? of_stream.n_records : 0};
  }

  // Room for n records and the end.
  SIMT_DEVICE LzParsed take(u64 n) const {
    const u64 at = simt::atomic_add(pool.taken, n + 1);
    return {at % pool.of_wave, static_cast<u32>(n), static_cast<u16>(at / pool.of_wave), false};
  }
  // The record behind the last one. Written with the others: until then, the room is that of an
  // earlier wave.
  SIMT_DEVICE static void put_end(const LzRecords& records, const LzStream& of_stream) {
    records.first[records.n] = {of_stream.target_nbytes, of_stream.source_nbytes};
  }
};

// 8 bytes at any address; the words that hold them are loaded.
template <bool constant = true>
SIMT_DEVICE u64 load_8(const u8* p) {
  const u32 shift = static_cast<u32>(reinterpret_cast<std::uintptr_t>(p) & 3);
  const auto* words = reinterpret_cast<const u32*>(p - shift);
  u32 a, b, c;
  if constexpr (constant) {
    a = simt::load_constant(words);
    b = simt::load_constant(words + 1);
    c = simt::load_constant(words + 2);
  } else {
    a = words[0];
    b = words[1];
    c = words[2];
  }
  return u64{simt::funnel_right(b, c, 8 * shift)} << 32 | simt::funnel_right(a, b, 8 * shift);
}

inline constexpr u32 kMostOf255 = kMaxStream / 255;  // longer runs have no room in any target

// Adds up bytes from x until one is not 255; leaves x after it, or beyond `end`.
SIMT_DEVICE u32 add_run(const u8* p, u32& x, u32 end) {
  if (x >= end) {
    x = end + 1;
    return 0;
  }
  const u32 first = simt::load_constant(p + x++);
  if (first < 255) return first;
  u32 n = 1;
  while (x < end) {
    // In a long run, loads in flight together: measured 2.5 times faster on constant planes.
    if (n >= 8 && end - x >= 64) {
      u64 all = ~u64{0};
      SIMT_UNROLL
      for (u32 i = 0; i < 64; i += 8) all &= load_8(p + x + i);
      if (all == ~u64{0}) {
        n += 64;
        x += 64;
        continue;
      }
    }
    const u64 not_255 = ~load_8(p + x);
    const u32 same = simt::trailing_zeros(not_255) / 8, left = end - x;
    if (same >= left) break;
    n += same;
    x += same;
    if (same == 8) continue;
    const u32 last = simt::load_constant(p + x++);
    return (n < kMostOf255 ? n : kMostOf255) * 255 + last;
  }
  x = end + 1;
  return 0;
}

struct LzUnknownRun {
  SIMT_DEVICE u32 operator()(const u8* p, u32& x, u32 end) const { return add_run(p, x, end); }
};

template <class Dialect>
SIMT_DEVICE LzStep step_at(const u8* p, u32 x, u32 end) {
  return Dialect::step(simt::load_constant(p + x), p, x, end, LzUnknownRun{});
}

SIMT_DEVICE u32 saturating_add(u32 a, u32 b) {
  const u32 sum = a + (b < kMaxStream ? b : kMaxStream);
  return sum < kMaxStream ? sum : kMaxStream;
}

// Over a warp.
SIMT_DEVICE u32 saturating_sum(u32 value) {
  for (u32 d = 1; d < simt::kWarp; d <<= 1)
    value = saturating_add(value, simt::shuffle_xor(value, d));
  return value;
}

// The last stream whose first group or tile is at most `index`. By a whole warp.
template <u32 LzStream::*first>
SIMT_DEVICE u32 find_stream(const LzBatch& batch, u32 index) {
  return simt::last_at_or_before(
      batch.n_streams, index, [&](u32 i) { return batch.streams[i].*first; });
}

}  // namespace headrace::SIMT_SPACE
