#pragma once

// Huffman codes for literals (https://www.rfc-editor.org/rfc/rfc8878#section-4.2.1).

#include "kernels/zstd/encode/fse_tables.h"
#include "kernels/zstd/huffman.h"

namespace headrace::SIMT_SPACE::zstd {

inline constexpr u32 kMaxHuffmanDescription = 128;

struct HuffmanEncoder {
  u32 codes[kMaxHuffmanSymbols];  // code | bits << 16; 0 for symbols that do not occur
  u32 description_nbytes;         // 0: the format has no way to write these codes down
  u8 description[kMaxHuffmanDescription];
};
SIMT_DEVICE u32 huffman_bits(u32 code) { return code >> 16; }

struct HuffmanEncoderWork {
  u32 n_sorted;
  u8 sorted[kMaxHuffmanSymbols];        // symbols that occur, the rarest first
  u32 weights[2 * kMaxHuffmanSymbols];  // of the leaves in that order, then of inner nodes
  u16 parents[2 * kMaxHuffmanSymbols];
  u32 log;  // of the longest code
  u32 weight_counts[kMaxHuffmanLog + 1];
  u8 symbol_weights[kMaxHuffmanSymbols];
  FseEncoder fse;
  FseEncoderWork fse_work;
};

// By all threads of a block, with a sync after it.
SIMT_DEVICE void sort_symbols(const u32* counts, HuffmanEncoderWork& work) {
  for (u32 symbol = simt::thread_index(); symbol < kMaxHuffmanSymbols; symbol += simt::cta_size()) {
    const u32 count = counts[symbol];
    u32 rank = 0, present = 0;
    for (u32 other = 0; other < kMaxHuffmanSymbols; ++other) {
      const u32 c = counts[other];
      present += c != 0;
      rank += c && (c < count || (c == count && other < symbol));
    }
    if (count) {
      work.sorted[rank] = static_cast<u8>(symbol);
      work.weights[rank] = count;
    }
    if (symbol == 0) work.n_sorted = present;
  }
}

// By one thread, for two symbols and more: replaces the leaves' weights by the lengths of their
// codes. The lightest nodes are at the front of two queues, leaves and inner nodes in the order
// they are made.
SIMT_DEVICE void find_code_lengths(HuffmanEncoderWork& work) {
  const u32 leaves = work.n_sorted, nodes = 2 * leaves - 1;
  u32 leaf = 0, inner = leaves;
  for (u32 made = leaves; made < nodes; ++made) {
    u32 sum = 0;
    for (u32 child = 0; child < 2; ++child) {
      const bool from_leaves =
          leaf < leaves && (inner == made || work.weights[leaf] <= work.weights[inner]);
      const u32 taken = from_leaves ? leaf++ : inner++;
      sum += work.weights[taken];
      work.parents[taken] = static_cast<u16>(made);
    }
    work.weights[made] = sum;
  }
  work.weights[nodes - 1] = 0;
  for (u32 node = nodes - 1; node-- > 0;) work.weights[node] = work.weights[work.parents[node]] + 1;
}

// By one thread: no code of more than kMaxHuffmanLog bits, and none left over.
SIMT_DEVICE void limit_code_lengths(HuffmanEncoderWork& work) {
  constexpr u32 kAll = 1u << kMaxHuffmanLog;
  u32* const lengths = work.weights;
  u32 used = 0;
  for (u32 i = 0; i < work.n_sorted; ++i) {
    if (lengths[i] > kMaxHuffmanLog) lengths[i] = kMaxHuffmanLog;
    used += kAll >> lengths[i];
  }
  for (u32 i = 0; used > kAll; ++i)
    while (used > kAll && lengths[i] < kMaxHuffmanLog) used -= kAll >> ++lengths[i];
  // From the most frequent on. All shares are powers of two, so the rarest fill any gap.
  for (u32 i = work.n_sorted; i-- > 0 && used < kAll;)
    while (lengths[i] > 1 && used + (kAll >> lengths[i]) <= kAll) used += kAll >> lengths[i]--;
  work.log = 0;
  for (u32 i = 0; i < work.n_sorted; ++i)
    if (lengths[i] > work.log) work.log = lengths[i];
}

// By one thread: codes by length, the longest first, then by symbol.
SIMT_DEVICE void assign_codes(HuffmanEncoderWork& work, HuffmanEncoder& encoder) {
  u32 next[kMaxHuffmanLog + 2] = {};
  for (u32 s = 0; s < kMaxHuffmanSymbols; ++s) encoder.codes[s] = 0;
  for (u32 i = 0; i < work.n_sorted; ++i) {
    encoder.codes[work.sorted[i]] = work.weights[i] << 16;
    ++next[work.weights[i]];
  }
  u32 code = 0;
  for (u32 length = work.log; length > 0; --length) {
    const u32 count = next[length];
    next[length] = code;
    code = (code + count) >> 1;
  }
  for (u32 s = 0; s < kMaxHuffmanSymbols; ++s)
    if (encoder.codes[s]) encoder.codes[s] |= next[huffman_bits(encoder.codes[s])]++;
}

// By one thread: two states take turns. Gives the size; more than the capacity if it is too small.
SIMT_DEVICE u32 put_fse_weights(const FseEncoder& fse, const u8* weights, u32 n, BitWriter bits) {
  u32 states[2];
  states[(n - 1) & 1] = first_state(fse, weights[n - 1]);
  states[n & 1] = first_state(fse, weights[n - 2]);
  for (u32 i = n - 2; i-- > 0;) {
    const FseStep step = step_to(fse, weights[i], states[i & 1]);
    bits.put(step.value, step.bits);
  }
  bits.put(states[1] & low_mask(fse.log), fse.log);
  bits.put(states[0] & low_mask(fse.log), fse.log);
  bits.put(1, 1);
  return bits.finish();
}

// By a warp: writes the weights of all symbols but the last, whose own follows from them.
SIMT_DEVICE void describe_codes(HuffmanEncoderWork& work, HuffmanEncoder& encoder) {
  const u32 lane = simt::lane_index();
  u32 n = 0;
  for (u32 s = lane; s < kMaxHuffmanSymbols; s += simt::kWarp) {
    const u32 bits = huffman_bits(encoder.codes[s]);
    work.symbol_weights[s] = static_cast<u8>(bits ? work.log + 1 - bits : 0);
    if (bits) n = s;
  }
  n = simt::reduce_max(n);
  if (lane <= kMaxHuffmanLog) work.weight_counts[lane] = 0;
  simt::sync_warp();
  for (u32 s = lane; s < n; s += simt::kWarp)
    simt::atomic_add(&work.weight_counts[work.symbol_weights[s]], 1u);
  simt::sync_warp();

  u8* const out = encoder.description;
  u32 fse_nbytes = ~0u;
  const u32 kinds = simt::ballot(lane <= kMaxHuffmanLog && work.weight_counts[lane] != 0);
  if (simt::popcount(kinds) > 1) {
    share_states(work.weight_counts, highest_bit(kinds) + 1, n, kMaxWeightLog, work.fse);
    build_fse_encoder(work.fse, work.fse_work);
    if (lane == 0) {
      describe_fse(work.fse);
      const u32 begin = 1 + work.fse.description_nbytes;
      fse_nbytes = begin + put_fse_weights(work.fse,
                                           work.symbol_weights,
                                           n,
                                           BitWriter(out + begin, kMaxHuffmanDescription - begin));
    }
  }
  if (lane != 0) return;
  const u32 plain_nbytes = n <= 128 ? 1 + (n + 1) / 2 : ~0u;
  if (fse_nbytes <= kMaxHuffmanDescription && fse_nbytes < plain_nbytes) {
    out[0] = static_cast<u8>(fse_nbytes - 1);
    for (u32 i = 0; i < work.fse.description_nbytes; ++i) out[1 + i] = work.fse.description[i];
    encoder.description_nbytes = fse_nbytes;
  } else if (n <= 128) {
    out[0] = static_cast<u8>(127 + n);
    work.symbol_weights[n] = 0;
    for (u32 i = 0; i < n; i += 2)
      out[1 + i / 2] = static_cast<u8>(work.symbol_weights[i] << 4 | work.symbol_weights[i + 1]);
    encoder.description_nbytes = plain_nbytes;
  } else {
    encoder.description_nbytes = 0;
  }
}

}  // namespace headrace::SIMT_SPACE::zstd
