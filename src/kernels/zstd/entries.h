#pragma once

// Entries of the three FSE tables of a block's sequences, in shared memory, and the serial chain
// that walks them. It runs at the latency of its ~46 instructions, 73 ns a sequence on one NVIDIA
// H200, and bounds reads of few frames: no branch, no check, nothing that could be done elsewhere.
// https://www.rfc-editor.org/rfc/rfc8878#section-4.1: a state is a cell of the table, and the next
// one is the cell's base plus as many bits as the cell says.

#include "kernels/zstd/bits.h"
#include "kernels/zstd/codes.h"

namespace headrace::SIMT_SPACE::zstd {

// Where tables start.
inline constexpr u32 kOffsetCells = 512, kMatchCells = 768, kCells = 1280;
SIMT_CONSTANT u32 kFirstCell[3] = {0, kOffsetCells, kMatchCells};
// Extra and state bits of a sequence are at most this many.
inline constexpr u32 kMaxSequenceBits = 31 + 16 + 16 + 9 + 8 + 9;

// 4 bytes: minus the extra and state bits (8), state bits (4), code (6), 2 unused, next state (12).
struct NarrowEntries {
  using Entry = u32;
  SIMT_DEVICE static Entry make(u32 code, u32 extra, u32 bits, u32 next, simt::SharedAddress) {
    return ((0u - extra - bits) & 255) | bits << 8 | code << 12 | next << 20;
  }
  SIMT_DEVICE static Entry load(simt::SharedAddress at) { return simt::load_shared(at); }
  SIMT_DEVICE static u32 minus_bits(Entry e) { return e; }            // in its low byte
  SIMT_DEVICE static u32 state_bits(Entry e) { return e >> 8 & 15; }  // in its low 5 bits
  SIMT_DEVICE static u32 code(Entry e) { return e >> 12 & 63; }
  SIMT_DEVICE static simt::SharedAddress next(Entry e, u32 bits, simt::SharedAddress table) {
    return (bits & ~(~0u << state_bits(e))) * 4 + (table + (e >> 18));
  }
};

// 8 bytes, which spare instructions: the mask of the state bits and the next address are ready.
// x: minus bits (8), mask; y: state bits (5), code (6), address.
struct WideEntries {
  using Entry = simt::Pair;
  SIMT_DEVICE static Entry make(
      u32 code, u32 extra, u32 bits, u32 next, simt::SharedAddress table) {
    return {((0u - extra - bits) & 255) | low_mask(bits) << 8,
            bits | code << 5 | (table + next * 8) << 11};
  }
  SIMT_DEVICE static Entry load(simt::SharedAddress at) { return simt::load_shared_pair(at); }
  SIMT_DEVICE static u32 minus_bits(Entry e) { return e.x; }
  SIMT_DEVICE static u32 state_bits(Entry e) { return e.y; }
  SIMT_DEVICE static u32 code(Entry e) { return e.y >> 5 & 63; }
  SIMT_DEVICE static simt::SharedAddress next(Entry e, u32 bits, simt::SharedAddress) {
    return (bits & e.x >> 8) * 8 + (e.y >> 11);
  }
};

struct Chain {
  const u32* words;
  i32 position;  // in bits; what is below it is still to be read
  simt::SharedAddress literal_length, offset, match_length;  // of the current entries
};

// Advances by `count` sequences and saves the chain before each at `save`. All words below the
// position must be readable as far as sequences can reach. Void and false if a sequence took more
// than 64 bits (or none).
template <class Entries>
SIMT_DEVICE bool advance(Chain& chain, u32 count, simt::SharedAddress save, u32 tables) {
  constexpr u32 kSize = sizeof(typename Entries::Entry);
  const u32 offset_table = tables + kOffsetCells * kSize,
            match_table = tables + kMatchCells * kSize;
  u32 position = static_cast<u32>(chain.position);
  u32 literal_length = chain.literal_length, offset = chain.offset,
      match_length = chain.match_length;
  const u32* at = chain.words + (chain.position >> 5);
  u32 c = simt::load_constant(at), b = simt::load_constant(at - 1), a = simt::load_constant(at - 2);
  u32 all = ~0u;
  for (u32 i = 0; i < count; ++i, save += sizeof(simt::Quad)) {
    const auto eo = Entries::load(offset), em = Entries::load(match_length),
               el = Entries::load(literal_length);
    simt::store_shared_quad(save, {position, literal_length, offset, match_length});
    const u32 high = simt::funnel_right(b, c, position), low = simt::funnel_right(a, b, position);
    const u32 sum = Entries::minus_bits(el) + Entries::minus_bits(eo) + Entries::minus_bits(em);
    all &= sum;
    // The state bits are the last ones read, so they come to lie at the bottom.
    const u32 bits = static_cast<u32>((u64{high} << 32 | low) >> (sum & 63));
    const u32 so = Entries::state_bits(eo), sm = Entries::state_bits(em);
    offset = Entries::next(eo, bits, offset_table);
    match_length = Entries::next(em, simt::funnel_right(bits, 0, so), match_table);
    literal_length = Entries::next(el, simt::funnel_right(bits, 0, so + sm), tables);
    // The words of the next step are asked for here and used after its table loads.
    position += sum | ~255u;
    at = chain.words + (static_cast<i32>(position) >> 5);
    c = simt::load_constant(at);
    b = simt::load_constant(at - 1);
    a = simt::load_constant(at - 2);
  }
  if ((all & 0xc0) != 0xc0) return false;
  chain = {chain.words, static_cast<i32>(position), literal_length, offset, match_length};
  return true;
}

// The same for any sequence, also where the stream may end. By value, so that the chain of the fast
// way stays in registers.
template <class Entries>
SIMT_DEVICE_NOINLINE Chain
advance_checked(Chain chain, u32 count, simt::SharedAddress save, u32 tables) {
  constexpr u32 kSize = sizeof(typename Entries::Entry);
  for (u32 i = 0; i < count; ++i, save += sizeof(simt::Quad)) {
    const auto eo = Entries::load(chain.offset), em = Entries::load(chain.match_length),
               el = Entries::load(chain.literal_length);
    simt::store_shared_quad(
        save,
        {static_cast<u32>(chain.position), chain.literal_length, chain.offset, chain.match_length});
    const u32 sum = Entries::minus_bits(el) + Entries::minus_bits(eo) + Entries::minus_bits(em);
    chain.position -= static_cast<i32>((0u - sum) & 255);
    const u32 bits = static_cast<u32>(bits_below(chain.words, chain.position + 32) >> 32);
    const u32 so = Entries::state_bits(eo) & 31, sm = Entries::state_bits(em) & 31;
    chain.offset = Entries::next(eo, bits, tables + kOffsetCells * kSize);
    chain.match_length = Entries::next(em, bits >> so, tables + kMatchCells * kSize);
    chain.literal_length = Entries::next(el, bits >> so >> sm, tables);
  }
  return chain;
}

}  // namespace headrace::SIMT_SPACE::zstd
