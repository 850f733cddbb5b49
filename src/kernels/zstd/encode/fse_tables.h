#pragma once

// FSE tables for encoding (https://www.rfc-editor.org/rfc/rfc8878#section-4.1). Everything is for
// all lanes of a warp at once, unless it says otherwise.

#include "kernels/zstd/bits.h"
#include "kernels/zstd/fse.h"

namespace headrace::SIMT_SPACE::zstd {

inline constexpr u32 kMinFseLog = 5;
inline constexpr u32 kMaxFseLog = 9;
inline constexpr u32 kMaxFseDescription = 80;

// A state is a cell of the decoder's table plus the number of cells.
struct FseEncoder {
  u32 log;      // 0: there is one symbol, which takes no bits
  u32 symbols;  // that have a count, of 0 too
  u32 description_nbytes;
  FseCount counts[kMaxFseSymbols];
  u16 first[kMaxFseSymbols];  // of a symbol's states
  u16 states[1 << kMaxFseLog];
  u8 description[kMaxFseDescription];
};

struct FseEncoderWork {
  u32 cells[1 << kMaxFseLog];
  FseWork work;
};

// Bits of one thread, the lowest of a byte first.
class BitWriter {
 public:
  SIMT_DEVICE BitWriter(u8* out, u32 capacity) : out_(out), capacity_(capacity) {}

  SIMT_DEVICE void put(u32 value, u32 bits) {
    pending_ |= u64{value} << n_pending_;
    for (n_pending_ += bits; n_pending_ >= 8; n_pending_ -= 8) {
      if (nbytes_ < capacity_) out_[nbytes_] = static_cast<u8>(pending_);
      ++nbytes_;
      pending_ >>= 8;
    }
  }
  // The number of bytes; more than the capacity when they did not fit.
  SIMT_DEVICE u32 finish() {
    if (n_pending_) put(0, 8 - n_pending_);
    return nbytes_;
  }

 private:
  u8* out_;
  u32 capacity_;
  u64 pending_ = 0;
  u32 n_pending_ = 0;
  u32 nbytes_ = 0;
};

SIMT_DEVICE u32 states_of(FseCount count) { return count < 0 ? 1 : static_cast<u32>(count); }

// 256 times the bits that a symbol with so many of 1 << log states takes; log2 by straight lines,
// at most 0.09 bits off.
SIMT_DEVICE u32 fse_cost(u32 log, u32 states) {
  const u32 whole = highest_bit(states);
  return (log - whole) * 256 - ((states << 8 >> whole) - 256);
}

// Of all symbols together, bits.
template <class Count>
SIMT_DEVICE u32 fse_bits(const u32* frequencies, u32 symbols, u32 log, Count count) {
  u32 cost = 0;
  for (u32 s = simt::lane_index(); s < symbols; s += simt::kWarp)
    if (frequencies[s]) cost += frequencies[s] * fse_cost(log, states_of(count(s)));
  return simt::reduce_add(cost) / 256;
}

// Shares 1 << log states out by how often symbols occur; at least two do, n times in all.
SIMT_DEVICE void share_states(
    const u32* frequencies, u32 symbols, u32 n, u32 max_log, FseEncoder& encoder) {
  const u32 lane = simt::lane_index();
  const u32 wanted = highest_bit(n) < kMinFseLog + 2 ? kMinFseLog : highest_bit(n) - 2;
  const u32 fewest = highest_bit(symbols - 1) + 1;  // every symbol takes a state
  u32 log = wanted < max_log ? wanted : max_log;
  if (log < fewest) log = fewest;
  u32 states[2], sum = 0;
  for (u32 i = 0; i < 2; ++i) {
    const u32 s = lane + i * simt::kWarp;
    const u32 frequency = s < symbols ? frequencies[s] : 0;
    states[i] = static_cast<u32>(((u64{frequency} << log) + n / 2) / n);
    if (frequency && states[i] == 0) states[i] = 1;
    sum += states[i];
  }
  sum = simt::reduce_add(sum);
  // What rounding left over, or took too many, falls to the most frequent.
  while (sum != 1u << log) {
    const u32 own = states[0] >= states[1] ? 0 : 1;
    const u32 largest = simt::reduce_max(states[own] << 5 | lane);
    const u32 missing = (1u << log) - sum;
    const u32 change = sum < 1u << log ? missing : ~u32{0};
    if ((largest & 31) == lane) states[own] += change;
    sum += change;
  }
  for (u32 i = 0; i < 2; ++i) {
    const u32 s = lane + i * simt::kWarp;
    if (s < symbols) encoder.counts[s] = static_cast<FseCount>(states[i]);
  }
  if (lane == 0) {
    encoder.log = log;
    encoder.symbols = symbols;
  }
  simt::sync_warp();
}

// The counts as read_fse_description() reads them. By one thread.
SIMT_DEVICE void describe_fse(FseEncoder& encoder) {
  BitWriter bits(encoder.description, kMaxFseDescription);
  bits.put(encoder.log - kMinFseLog, 4);
  u32 left = (1u << encoder.log) + 1;
  for (u32 symbol = 0; left > 1;) {
    const u32 states = states_of(encoder.counts[symbol++]), value = states + 1;
    const u32 width = highest_bit(left) + 1;
    const u32 short_values = low_mask(width) - left, half = low_mask(width - 1);
    if (value < short_values)
      bits.put(value, width - 1);
    else
      bits.put(value > half ? value + short_values : value, width);
    left -= states;
    if (states != 0) continue;
    u32 zeros = 0;
    while (encoder.counts[symbol] == 0) {
      ++symbol;
      if (++zeros % 3 == 0) bits.put(3, 2);
    }
    bits.put(zeros % 3, 2);
  }
  encoder.description_nbytes = bits.finish();
}

// The states, from log and counts.
SIMT_DEVICE void build_fse_encoder(FseEncoder& encoder, FseEncoderWork& work) {
  const u32 lane = simt::lane_index(), size = 1u << encoder.log, symbols = encoder.symbols;
  build_fse_cells(
      work.cells, encoder.log, encoder.counts, symbols, work.work, [&](u32 s, u32 bits, u32 base) {
        return s | ((base + size) >> bits) << 8;  // with the number of the symbol's cell
      });
  u32 before = 0;
  for (u32 s = lane; s < kMaxFseSymbols; s += simt::kWarp) {
    const u32 states = s < symbols ? states_of(encoder.counts[s]) : 0;
    const u32 sum = before + simt::inclusive_sum(states);
    encoder.first[s] = static_cast<u16>(sum - states);
    before = simt::shuffle(sum, simt::kWarp - 1);
  }
  simt::sync_warp();
  for (u32 cell = lane; cell < size; cell += simt::kWarp) {
    const u32 s = work.cells[cell] & 255, number = work.cells[cell] >> 8;
    encoder.states[encoder.first[s] + number - states_of(encoder.counts[s])] =
        static_cast<u16>(size + cell);
  }
  simt::sync_warp();
}

// By one thread: a table of one symbol.
SIMT_DEVICE void make_constant(FseEncoder& encoder, u32 symbol) {
  encoder.log = 0;
  encoder.symbols = symbol + 1;
  encoder.counts[symbol] = 1;
  encoder.first[symbol] = 0;
  encoder.states[0] = 1;
}

// The last symbol of a stream comes first, and takes no bits but its state at the end. From its
// first state the decoder reads at least one bit, which tells it where Huffman weights end.
SIMT_DEVICE u32 first_state(const FseEncoder& encoder, u32 symbol) {
  return encoder.states[encoder.first[symbol]];
}

struct FseStep {
  u32 value, bits;
};
// How a symbol's step depends on the state it comes from: the number of bits is the upper half of
// state + bits, and the state's other bits + cell are where the next state is.
struct FseTransition {
  u32 bits, cell;
};
SIMT_DEVICE FseTransition transition_of(const FseEncoder& encoder, u32 symbol) {
  const u32 states = states_of(encoder.counts[symbol]);
  const u32 most = states == 1 ? encoder.log : encoder.log - highest_bit(states - 1);
  return {(most << 16) - (states << most), encoder.first[symbol] - states};
}
// Goes on to a state of the symbol before.
SIMT_DEVICE FseStep step_by(const FseEncoder& encoder, FseTransition by, u32& state) {
  const u32 bits = (state + by.bits) >> 16;
  const u32 value = state & low_mask(bits);
  state = encoder.states[(state >> bits) + by.cell];
  return {value, bits};
}
SIMT_DEVICE FseStep step_to(const FseEncoder& encoder, u32 symbol, u32& state) {
  return step_by(encoder, transition_of(encoder, symbol), state);
}

}  // namespace headrace::SIMT_SPACE::zstd
