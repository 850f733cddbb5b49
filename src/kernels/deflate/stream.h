#pragma once

// Deflate streams on the device:
//
// 0. find.cpp, for few streams: where their blocks begin, as a guess.
// 1. symbols.cpp: a CTA a stream takes its blocks in order. Literals go to the
//    target at once. A match is at least 3 bytes long, and length and distance fit 23 bits: they
//    wait in the first 3 bytes of the match's own place, and a bit map says where matches start.
// 2. execute.cpp: in a tile of the target each byte becomes a value or the position of an
//    older byte outside the tile. Of many streams a CTA each takes tiles in order; of some dozens
//    all CTAs do, in turns; of few all are done at once, and bytes are then followed from tile to
//    tile.
// 3. verify.cpp, for gzip and zlib.

#include <span>

#include "kernels/checksum/verify.h"
#include "kernels/kernels.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE::deflate {

inline constexpr u32 kDeflateTile = 16 * 1024;
inline constexpr u64 kMaxDeflateTarget = 0xffff0000;  // positions have 32 bits

inline constexpr u32 kNone = ~u32{0};

enum class Container : u32 { none, zlib, gzip };

struct DeflateStream {
  const u8* source;
  u64 source_nbytes;
  u8* target;
  u32 target_nbytes;
  u32 chunk;
  u32 first_tile;
  u32 first_cell;  // of the search for blocks
  u32 cell_count;  // 0: not searched
};

SIMT_HOST_DEVICE u32 tile_count(u64 nbytes) {
  return static_cast<u32>((nbytes + kDeflateTile - 1) / kDeflateTile);
}

// What step 1 found.
struct DeflateResult {
  u32 fault;     // Fault
  u32 checksum;  // what the container says of all decoded bytes
};

// Of a match that goes on in the next tile.
struct MatchRest {
  u32 nbytes;  // 0: no such match
  u32 distance;
};

// The search for blocks keeps one candidate a cell of the source; which, does not matter much: what
// is not found is decoded in order.
inline constexpr u32 kSearchCellBits = 4096;
inline constexpr u32 kSearchGroupBits = 65536;  // for a CTA
// Room for positions whose headers are looked at once more. Of random bits 1.5 a cell are.
inline constexpr u32 kDoubtfulACell = 2;

struct BlockCandidate {
  u64 bit;
  u32 stream;
};
struct FoundBlock {
  u64 end;  // bit; 0: no block after all
  u32 nbytes;
  u32 last;
};
// A found block that is one, and where its output goes.
struct TakenBlock {
  u64 bit;
  u32 stream;
  u32 position;
  u32 member_start;
};
struct SearchCounts {
  u32 doubtful;
  u32 candidates, next_candidate;
  u32 taken, next_taken;
};
struct BlockSearch {
  u32* starts;  // of each cell: its candidate's bit
  FoundBlock* found;
  BlockCandidate* doubtful;
  BlockCandidate* candidates;
  TakenBlock* taken;
  SearchCounts* counts;
  u32 capacity;  // of each array; of `doubtful` kDoubtfulACell times as much
};

struct DeflateWork {
  Container container;
  const DeflateStream* streams;
  u32 count;
  const u32* stream_of_tile;
  u32* match_starts;  // a bit for each byte of each tile; zeros at first
  MatchRest* rests;   // of each tile; zeros at first
  DeflateResult* results;
  u32* faults;  // of each chunk
  BlockSearch search;
};

// Where a match is, while it waits.
struct Match {
  u32 nbytes;
  u32 distance;
};
SIMT_DEVICE u32 pack_match(u32 nbytes, u32 distance) { return (nbytes - 3) | (distance - 1) << 8; }
SIMT_DEVICE Match unpack_match(u32 packed) {
  return {(packed & 255) + 3, (packed >> 8 & 0x7fff) + 1};
}

// CTAs take items until none is left. True while `item` is one.
SIMT_DEVICE bool next_item(u32* next, u32 count, u32& shared_item, u32& item) {
  simt::sync_cta();
  if (simt::thread_index() == 0) shared_item = simt::atomic_add(next, 1u);
  simt::sync_cta();
  item = shared_item;
  return item < count;
}

void find_blocks(Queue& queue, const DeflateWork& work);
void decode_symbols(Queue& queue, const DeflateWork& work, u64 most_source_nbytes);
// For streams enough to keep the device busy; `most_tiles`: of one of them.
void execute_in_order(Queue& queue, const DeflateWork& work, u32 most_tiles);
// Tiles `first` up to `end`; all before are done.
void execute_tiles(Queue& queue, const DeflateWork& work, u32 first, u32 end);
// Of the containers; `targets` are those of all streams.
void verify_checksums(Queue& queue, const DeflateWork& work, std::span<const ByteSpan> targets);

}  // namespace headrace::SIMT_SPACE::deflate
