#pragma once

// Huffman tables (https://www.rfc-editor.org/rfc/rfc8878#section-4.2.1).

#include "kernels/zstd/bits.h"
#include "kernels/zstd/fse.h"

namespace headrace::SIMT_SPACE::zstd {

inline constexpr u32 kMaxHuffmanLog = 11;
inline constexpr u32 kMaxHuffmanSymbols = 256;
inline constexpr u32 kMaxWeightLog = 6;

struct HuffmanTable {
  alignas(16) u16 entries[1 << kMaxHuffmanLog];  // symbol << 8 | code length
  u32 log;                                       // 0: malformed
  u32 nbytes;                                    // of the description
};

struct HuffmanBuilder {
  u8 weights[kMaxHuffmanSymbols];
  u8 sorted[kMaxHuffmanSymbols];    // symbols by weight
  u32 symbols[kMaxHuffmanLog + 2];  // of lower weights; before, of the weight
  u32 entries[kMaxHuffmanLog + 2];  // where those of the weight start
  u32 cells[1 << kMaxWeightLog];    // symbol | bits << 8 | next << 16
  FseCount counts[kMaxFseSymbols];
  FseWork fse;
};

// https://www.rfc-editor.org/rfc/rfc8878#section-4.2.1.2
// Two states take turns; the weights end when one has no bits left for its next state. Gives their
// number, 0 if malformed.
SIMT_DEVICE u32 read_fse_weights(HuffmanBuilder& builder, const u8* stream, u32 nbytes, u32 log) {
  if (nbytes == 0 || stream[nbytes - 1] == 0) return 0;
  const WordsOf<u32> from = words_of<u32>(stream);
  const i32 end = static_cast<i32>(from.skipped * 8);
  i32 position = end + static_cast<i32>((nbytes - 1) * 8 + highest_bit(stream[nbytes - 1]));
  // What a window holds is enough for several steps.
  constexpr u32 kSteps = 8;
  static_assert(kSteps * kMaxWeightLog <= 64);
  u64 window = bits_below(from.words, position);
  const auto take = [&](u32 bits) {
    const u32 value = top_bits(window, bits);
    window <<= bits;
    position -= static_cast<i32>(bits);
    return value;
  };
  u32 state = take(log), other = take(log);
  if (position < end) return 0;
  // The last symbol has no weight written down.
  for (u32 count = 0; count + 2 < kMaxHuffmanSymbols;) {
    if (count % kSteps == 0) window = bits_below(from.words, position);
    const u32 cell = builder.cells[state], bits = cell >> 8 & 255;
    builder.weights[count++] = static_cast<u8>(cell);
    if (position - static_cast<i32>(bits) < end) {
      builder.weights[count] = static_cast<u8>(builder.cells[other]);
      return count + 1;
    }
    state = other;
    other = (cell >> 16) + take(bits);
  }
  return 0;
}

// By a warp: the weights that are written down. Gives their number and the size of the description.
SIMT_DEVICE u32 read_weights(HuffmanBuilder& builder, const u8* p, u32 nbytes, u32& used) {
  const u32 lane = simt::lane_index();
  if (nbytes == 0) return 0;
  const u32 header = p[0];
  if (header >= 128) {
    const u32 count = header - 127;
    used = 1 + (count + 1) / 2;
    if (used > nbytes) return 0;
    for (u32 i = lane; i < count; i += simt::kWarp)
      builder.weights[i] = i & 1 ? p[1 + i / 2] & 15 : p[1 + i / 2] >> 4;
    return count;
  }
  used = 1 + header;
  if (used > nbytes) return 0;
  FseDescription found;
  if (lane == 0)
    found = read_fse_description(p + 1, header, kMaxHuffmanLog, kMaxWeightLog, builder.counts);
  const u32 description = simt::shuffle(found.nbytes, 0), log = simt::shuffle(found.log, 0);
  if (description == 0) return 0;
  simt::sync_warp();
  build_fse_cells(builder.cells,
                  log,
                  builder.counts,
                  simt::shuffle(found.symbols, 0),
                  builder.fse,
                  [](u32 symbol, u32 bits, u32 next) { return symbol | bits << 8 | next << 16; });
  u32 count = 0;
  if (lane == 0) count = read_fse_weights(builder, p + 1 + description, header - description, log);
  return simt::shuffle(count, 0);
}

// By a warp: the description at [at, end) of `data`, up to what fill_huffman_table needs.
SIMT_DEVICE void read_huffman_table(
    HuffmanTable& table, HuffmanBuilder& builder, const u8* data, u32 at, u32 end) {
  const u32 lane = simt::lane_index();
  if (lane == 0) table.log = 0;
  u32 used = 0;
  const u32 count = read_weights(builder, data + at, end - at, used);
  if (lane < kMaxHuffmanLog + 2) builder.symbols[lane] = 0;
  simt::sync_warp();
  if (count == 0) return;

  // The last symbol's weight fills up to a power of two.
  u32 sum = 0;
  bool bad = false;
  for (u32 i = lane; i < count; i += simt::kWarp) {
    const u32 weight = builder.weights[i];
    bad |= weight > kMaxHuffmanLog;
    sum += weight ? 1u << (weight - 1) : 0;
  }
  sum = simt::reduce_add(sum);
  if (simt::any(bad) || sum == 0) return;
  const u32 log = highest_bit(sum) + 1, rest = (1u << log) - sum;
  if (log > kMaxHuffmanLog || (rest & (rest - 1))) return;
  if (lane == 0) builder.weights[count] = static_cast<u8>(highest_bit(rest) + 1);
  simt::sync_warp();

  for (u32 i = lane; i <= count; i += simt::kWarp)
    simt::atomic_add(&builder.symbols[builder.weights[i]], 1u);
  simt::sync_warp();
  const u32 of_weight = lane >= 1 && lane <= kMaxHuffmanLog ? builder.symbols[lane] : 0;
  const u32 symbols = simt::inclusive_sum(of_weight);
  const u32 entries = simt::inclusive_sum(lane ? of_weight << (lane - 1) : 0);
  const u32 longest = simt::shuffle(of_weight, 1);
  if (longest < 2 || longest & 1) return;
  if (lane < kMaxHuffmanLog + 2) {
    builder.symbols[lane] = symbols - of_weight;
    builder.entries[lane] = lane ? entries - (of_weight << (lane - 1)) : 0;
  }
  simt::sync_warp();
  for (u32 i = lane; i < kMaxHuffmanSymbols; i += simt::kWarp) {
    const u32 weight = i <= count ? builder.weights[i] : 0;
    const u32 same = simt::match(weight), below = same & low_mask(lane);
    const u32 rank = builder.symbols[weight] + simt::popcount(below);
    simt::sync_warp();
    if (weight) builder.sorted[rank] = static_cast<u8>(i);
    if (weight && below == 0) builder.symbols[weight] += simt::popcount(same);
    simt::sync_warp();
  }
  if (lane == 0) {
    table.log = log;
    table.nbytes = used;
  }
}

// https://www.rfc-editor.org/rfc/rfc8878#section-4.2.1.3
// By `threads` threads: codes grow shorter from entry to entry, and are in order of symbols within
// a length. Behind a table of two entries come two that nothing reads.
SIMT_DEVICE void fill_huffman_table(HuffmanTable& table,
                                    const HuffmanBuilder& builder,
                                    u32 thread,
                                    u32 threads) {
  const u32 log = table.log;
  u32 starts[kMaxHuffmanLog + 1];  // entries of the weight; behind all where there are none
  SIMT_UNROLL
  for (u32 weight = 2; weight <= kMaxHuffmanLog; ++weight) starts[weight] = builder.entries[weight];
  constexpr u32 kOfThread = 4;
  for (u32 first = kOfThread * thread; first < 1u << log; first += kOfThread * threads) {
    u32 entries[kOfThread];
    SIMT_UNROLL
    for (u32 k = 0; k < kOfThread; ++k) {
      u32 weight = 1;
      SIMT_UNROLL
      for (u32 longer = 2; longer <= kMaxHuffmanLog; ++longer)
        weight += starts[longer] <= first + k;
      // Placing symbols has moved symbols[] on by one weight.
      const u32 index =
          builder.symbols[weight - 1] + ((first + k - builder.entries[weight]) >> (weight - 1));
      entries[k] = u32{builder.sorted[index]} << 8 | (log + 1 - weight);
    }
    *reinterpret_cast<simt::Pair*>(table.entries + first) = {entries[0] | entries[1] << 16,
                                                             entries[2] | entries[3] << 16};
  }
}

}  // namespace headrace::SIMT_SPACE::zstd
