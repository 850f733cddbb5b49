#pragma once

// Words at any address. Loads touch only aligned words that hold a wanted byte.

#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

SIMT_DEVICE u32 misalignment(const void* p, u32 alignment) {
  return static_cast<u32>(reinterpret_cast<std::uintptr_t>(p)) & (alignment - 1);
}

SIMT_DEVICE u32 load_word(const u8* p) {
  const u32 skip = misalignment(p, 4);
  const u32* words = reinterpret_cast<const u32*>(p - skip);
  const u32 low = simt::load_constant(words);
  const u32 high = skip ? simt::load_constant(words + 1) : 0;
  return simt::funnel_right(low, high, 8 * skip);
}

SIMT_DEVICE simt::Pair load_pair(const u8* p) {
  if (misalignment(p, 8) == 0) return simt::load_constant(reinterpret_cast<const simt::Pair*>(p));
  return {load_word(p), load_word(p + 4)};
}

SIMT_DEVICE simt::Quad load_quad(const u8* p) {
  if (misalignment(p, 16) == 0) return simt::load_constant(reinterpret_cast<const simt::Quad*>(p));
  return {load_word(p), load_word(p + 4), load_word(p + 8), load_word(p + 12)};
}

// What lies outside [begin, end) reads as zeros.
SIMT_DEVICE simt::Quad load_quad_within(const u8* p, const u8* begin, const u8* end) {
  if (p >= begin && p + 16 <= end) return load_quad(p);
  u32 words[4] = {};
  SIMT_UNROLL
  for (unsigned i = 0; i < 16; ++i)
    if (p + i >= begin && p + i < end) words[i / 4] |= u32{p[i]} << i % 4 * 8;
  return {words[0], words[1], words[2], words[3]};
}

SIMT_DEVICE void store_word(u8* p, u32 word) {
  if (misalignment(p, 4) == 0) {
    *reinterpret_cast<u32*>(p) = word;
    return;
  }
  SIMT_UNROLL
  for (unsigned i = 0; i < 4; ++i) p[i] = static_cast<u8>(word >> 8 * i);
}

SIMT_DEVICE void store_pair(u8* p, simt::Pair pair) {
  if (misalignment(p, 8) == 0) {
    *reinterpret_cast<simt::Pair*>(p) = pair;
    return;
  }
  store_word(p, pair.x);
  store_word(p + 4, pair.y);
}

SIMT_DEVICE void store_quad(u8* p, simt::Quad quad) {
  if (misalignment(p, 16) == 0) {
    *reinterpret_cast<simt::Quad*>(p) = quad;
    return;
  }
  store_word(p, quad.x);
  store_word(p + 4, quad.y);
  store_word(p + 8, quad.z);
  store_word(p + 12, quad.w);
}

// By `threads` threads, at least 16, of which this is number `thread`; with aligned stores of
// quads.
template <unsigned threads>
SIMT_DEVICE void copy_bytes_as(u32 thread, u8* target, const u8* source, u32 nbytes) {
  static_assert(threads >= 16);
  const u32 skip = misalignment(target, 16), to_aligned = skip ? 16 - skip : 0;
  const u32 head = to_aligned < nbytes ? to_aligned : nbytes, quads = (nbytes - head) / 16;
  for (u32 i = thread; i < quads; i += threads)
    *reinterpret_cast<simt::Quad*>(target + head + 16 * i) = load_quad(source + head + 16 * i);
  if (thread < head) target[thread] = source[thread];
  const u32 tail = head + 16 * quads + thread;
  if (thread < 16 && tail < nbytes) target[tail] = source[tail];
}

// By a CTA of `threads`.
template <unsigned threads>
SIMT_DEVICE void copy_bytes(u8* target, const u8* source, u32 nbytes) {
  copy_bytes_as<threads>(simt::thread_index(), target, source, nbytes);
}

// By a warp.
SIMT_DEVICE void copy_bytes_by_warp(u8* target, const u8* source, u32 nbytes) {
  copy_bytes_as<simt::kWarp>(simt::lane_index(), target, source, nbytes);
}

// Word i of a warp's 32 goes to p, which is 4 i behind the first's; with aligned stores, whatever
// p.
SIMT_DEVICE void store_row(u8* p, u32 word) {
  const u32 skip = misalignment(p, 4);
  if (skip == 0) {
    *reinterpret_cast<u32*>(p) = word;
    return;
  }
  const unsigned lane = simt::lane_index(), head = 4 - skip;
  const u32 before = simt::shuffle_up(word, 1);
  if (lane == 0)
    for (unsigned i = 0; i < head; ++i) p[i] = static_cast<u8>(word >> 8 * i);
  else
    *reinterpret_cast<u32*>(p - skip) = simt::funnel_right(before, word, 8 * head);
  if (lane == simt::kWarp - 1)
    for (unsigned i = head; i < 4; ++i) p[i] = static_cast<u8>(word >> 8 * i);
}

}  // namespace headrace::SIMT_SPACE
