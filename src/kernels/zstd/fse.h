#pragma once

// FSE tables (https://www.rfc-editor.org/rfc/rfc8878#section-4.1): their descriptions, read by one
// thread each, and their cells, built by a warp.

#include "kernels/zstd/bits.h"

namespace headrace::SIMT_SPACE::zstd {

using FseCount = std::int16_t;

struct FseDescription {
  u32 log = 0;
  u32 symbols = 0;
  u32 nbytes = 0;  // 0: malformed
};

// https://www.rfc-editor.org/rfc/rfc8878#section-4.1.1
// Counts of symbols, -1 standing for "less than one". A count takes one bit less where its value
// is small, since the sum that is left rules large ones out.
SIMT_DEVICE FseDescription
read_fse_description(const u8* p, u32 nbytes, u32 max_symbol, u32 max_log, FseCount* counts) {
  if (nbytes == 0) return {};
  const u32 end = nbytes * 8;
  const u32 log = 5 + (bits_from(p, 0) & 15);
  if (log > max_log) return {};
  u32 bit = 4, symbols = 0;
  i32 left = (1 << log) + 1;
  while (left > 1 && symbols <= max_symbol && bit <= end) {
    const u32 word = bits_from(p, bit);
    const u32 width = 32 - simt::leading_zeros(static_cast<u32>(left));
    const u32 short_values = low_mask(width) - static_cast<u32>(left), half = low_mask(width - 1);
    u32 value = word & low_mask(width);
    if ((value & half) < short_values) {
      value &= half;
      bit += width - 1;
    } else {
      if (value > half) value -= short_values;
      bit += width;
    }
    left -= value == 0 ? 1 : static_cast<i32>(value) - 1;
    counts[symbols++] = static_cast<FseCount>(static_cast<i32>(value) - 1);
    if (value != 1) continue;
    for (u32 zeros = 3; zeros == 3 && bit <= end; bit += 2) {
      zeros = bits_from(p, bit) & 3;
      for (u32 i = 0; i < zeros && symbols <= max_symbol; ++i) counts[symbols++] = 0;
    }
  }
  if (left != 1 || bit > end) return {};
  return {log, symbols, (bit + 7) / 8};
}

inline constexpr u32 kMaxFseSymbols = 64;
struct FseWork {
  u16 first[kMaxFseSymbols];  // cells of lower symbols
  u16 next[kMaxFseSymbols];   // number of the next cell of the symbol
};

// Fills cells by make(symbol, bits of the next state, its base). Cells must start with a u32, which
// holds the symbol meanwhile. The counts must add up to 1 << log.
template <class Cell, class Make>
SIMT_DEVICE void build_fse_cells(
    Cell* cells, u32 log, const FseCount* counts, u32 symbols, FseWork& work, Make make) {
  const u32 lane = simt::lane_index(), size = 1u << log, below = low_mask(lane);
  const auto symbol_in = [&](u32 cell) -> u32& { return *reinterpret_cast<u32*>(cells + cell); };

  // Two symbols a lane. Rare ones take the last cells.
  const i32 count[2] = {2 * lane < symbols ? counts[2 * lane] : 0,
                        2 * lane + 1 < symbols ? counts[2 * lane + 1] : 0};
  const u32 common[2] = {count[0] > 0 ? static_cast<u32>(count[0]) : 0,
                         count[1] > 0 ? static_cast<u32>(count[1]) : 0};
  const u32 rare = (count[0] < 0) + (count[1] < 0);
  const u32 commons = simt::inclusive_sum(common[0] + common[1]);
  const u32 rares = simt::inclusive_sum(rare);
  const u32 end_of_common = size - simt::shuffle(rares, simt::kWarp - 1);
  u32 first = commons - common[0] - common[1], rare_cell = size - (rares - rare);
  for (u32 i = 0; i < 2; ++i) {
    const u32 symbol = 2 * lane + i;
    work.first[symbol] = static_cast<u16>(first);
    work.next[symbol] = static_cast<u16>(count[i] < 0 ? 1 : common[i]);
    first += common[i];
    if (count[i] < 0) symbol_in(--rare_cell) = symbol;
  }
  simt::sync_warp();

  // The others are spread by a step that visits every cell once.
  const u32 step = (size >> 1) + (size >> 3) + 3;
  u32 placed = 0;
  for (u32 i = lane; i < size; i += simt::kWarp) {
    const u32 cell = i * step & (size - 1);
    const bool is_common = cell < end_of_common;
    const u32 votes = simt::ballot(is_common);
    const u32 rank = placed + simt::popcount(votes & below);
    placed += simt::popcount(votes);
    if (!is_common) continue;
    u32 symbol = 0;
    for (u32 half = kMaxFseSymbols / 2; half; half /= 2)
      if (work.first[symbol + half] <= rank) symbol += half;
    symbol_in(cell) = symbol;
  }
  simt::sync_warp();

  // Cells of a symbol are numbered in order, which gives the states that they lead to.
  for (u32 cell = lane; cell < size; cell += simt::kWarp) {
    const u32 symbol = symbol_in(cell);
    const u32 same = simt::match(symbol);
    const u32 number = work.next[symbol] + simt::popcount(same & below);
    simt::sync_warp();
    if ((same & below) == 0) work.next[symbol] = static_cast<u16>(number + simt::popcount(same));
    simt::sync_warp();
    const u32 bits = log - highest_bit(number);
    cells[cell] = make(symbol, bits, (number << bits) - size);
  }
  simt::sync_warp();
}

}  // namespace headrace::SIMT_SPACE::zstd
