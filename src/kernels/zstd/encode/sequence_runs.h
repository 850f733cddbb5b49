#pragma once

// The bits of a block's sequences, by all threads of a CTA: each takes a run of neighbours.
//
// A sequence needs the states that those written before it leave. But a step of FSE forgets of its
// state what it writes, so states that a thread begins some sequences early, with any value, have
// nearly always become the true ones by its own. Each thread then compares with what its left
// neighbour leaves, and begins again there if it has to: what all agree on is right, since the
// first began right.

#include "kernels/zstd/encode/bit_run.h"
#include "kernels/zstd/encode/fse_tables.h"
#include "kernels/zstd/encode/stages.h"

namespace headrace::SIMT_SPACE::zstd {

// In shared memory.
struct SequenceTables {
  FseEncoder fse[3];
  FseTransition transitions[3][kCodeSymbols];  // of codes that occur

  // By a warp, of a table that is built.
  SIMT_DEVICE void find_transitions(u32 t, const u32* counts) {
    for (u32 s = simt::lane_index(); s < kCodeSymbols; s += simt::kWarp)
      if (counts[s]) transitions[t][s] = transition_of(fse[t], s);
  }
};

template <unsigned kThreads>
class SequenceRuns {
  static constexpr unsigned kWarps = kThreads / simt::kWarp;

 public:
  struct Shared {
    u32 left[kThreads];  // the states behind each run
    u32 sums[kWarps];    // of bits, of a warp
    u32 is_wrong[kWarps];
  };

  // For all threads at once, as what follows; `count` sequences, of which the last is written
  // first.
  SIMT_DEVICE SequenceRuns(const SequenceTables& tables,
                           Shared& shared,
                           const u64* sequences,
                           u32 count)
      : tables_(tables), shared_(shared), sequences_(sequences), count_(count) {
    const u32 share = (count + kThreads - 1) / kThreads, first = simt::thread_index() * share;
    begin_ = first < count ? first : count;
    end_ = count - begin_ < share ? count : begin_ + share;
  }

  // Gives the bytes of all bits.
  SIMT_DEVICE u32 settle() {
    const u32 thread = simt::thread_index(), warp = simt::warp_index();
    entered_ =
        begin_ < end_ ? states_behind(begin_ < kWarmUp ? 0 : begin_ - kWarmUp, begin_, 0) : 0;
    for (bool again = begin_ < end_;;) {
      if (again) shared_.left[thread] = states_behind(begin_, end_, entered_);
      simt::sync_cta();
      const u32 before = begin_ > 0 && begin_ < end_ ? shared_.left[thread - 1] : entered_;
      again = before != entered_;
      entered_ = before;
      const bool is_wrong = simt::any(again);
      if (simt::lane_index() == 0) shared_.is_wrong[warp] = is_wrong;
      simt::sync_cta();
      u32 wrong = 0;
      for (u32 w = 0; w < kWarps; ++w) wrong |= shared_.is_wrong[w];
      if (!wrong) break;
    }
    bits_ = count_bits();
    const u32 through = simt::inclusive_sum(bits_);
    if (simt::lane_index() == simt::kWarp - 1) shared_.sums[warp] = through;
    simt::sync_cta();
    u32 all = 0;
    at_ = through - bits_;
    for (u32 w = 0; w < kWarps; ++w) {
      if (w < warp) at_ += shared_.sums[w];
      all += shared_.sums[w];
    }
    return (all + 7) / 8;
  }

  // Before put(), with a sync in between.
  SIMT_DEVICE void share(const BitSection& section) const {
    section.share(section.first_bit() + at_);
    section.share(section.first_bit() + at_ + bits_);
  }

  SIMT_DEVICE void put(const BitSection& section) const {
    if (begin_ == end_) return;
    BitRun bits(section, section.first_bit() + at_);
    u32 states[3];
    unpack_states(entered_, states);
    walk(begin_, end_, states, [&](const Sequence& sequence, const FseStep(&steps)[3]) {
      const FseStep &a = steps[kOffsets], &b = steps[kMatchLengths], &c = steps[kLiteralLengths];
      bits.put(a.value | b.value << a.bits | c.value << (a.bits + b.bits),
               a.bits + b.bits + c.bits);
      const u32 literals = kLiteralLengthCodes[sequence.literals_code];
      const u32 match = kMatchLengthCodes[sequence.match_code];
      const u64 match_extra = sequence.match - code_baseline(match);
      bits.put((sequence.literals - code_baseline(literals)) |
                   static_cast<u32>(match_extra << code_bits(literals)),
               code_bits(literals) + code_bits(match));
      const u32 offset_bits = highest_bit(sequence.offset_value);
      bits.put(sequence.offset_value - (1u << offset_bits), offset_bits);
    });
    if (end_ == count_) {
      for (const u32 t : {kMatchLengths, kOffsets, kLiteralLengths})
        bits.put(states[t] & low_mask(tables_.fse[t].log), tables_.fse[t].log);
      bits.put(1, 1);  // says where the stream ends, which is its beginning to the decoder
    }
    bits.finish();
  }

 private:
  // Where every code takes a bit, nearly all states of 9 bits are true by then.
  static constexpr u32 kWarmUp = 16;

  SIMT_DEVICE static u32 pack_states(const u32 (&states)[3]) {
    static_assert(kMaxFseLog == 9);  // states have a bit more
    return states[0] | states[1] << 10 | states[2] << 20;
  }
  SIMT_DEVICE static void unpack_states(u32 packed, u32 (&states)[3]) {
    for (u32 t = 0; t < 3; ++t) states[t] = packed >> 10 * t & 1023;
  }

  SIMT_DEVICE u64 packed(u32 i) const { return sequences_[count_ - 1 - i]; }

  // take(sequence, steps) for [begin, end), as they are written. States of 0 are none: where there
  // are none, the first sequence takes no bits for its own.
  template <class Take>
  SIMT_DEVICE void walk(u32 begin, u32 end, u32 (&states)[3], const Take& take) const {
    if (begin == end) return;
    u64 next = packed(begin);
    u32 i = begin;
    if (states[0] == 0) {
      const Sequence now = unpack_sequence(next);
      const u32 codes[3] = {now.literals_code, highest_bit(now.offset_value), now.match_code};
      for (u32 t = 0; t < 3; ++t) states[t] = first_state(tables_.fse[t], codes[t]);
      if (++i < end) next = packed(i);
      const FseStep none[3] = {};
      take(now, none);
    }
    for (; i < end; ++i) {
      const Sequence now = unpack_sequence(next);
      if (i + 1 < end) next = packed(i + 1);
      const u32 codes[3] = {now.literals_code, highest_bit(now.offset_value), now.match_code};
      FseStep steps[3];
      for (u32 t = 0; t < 3; ++t)
        steps[t] = step_by(tables_.fse[t], tables_.transitions[t][codes[t]], states[t]);
      take(now, steps);
    }
  }

  SIMT_DEVICE u32 states_behind(u32 begin, u32 end, u32 entered) const {
    u32 states[3];
    unpack_states(entered, states);
    walk(begin, end, states, [](const auto&...) {});
    return pack_states(states);
  }

  // Of the run.
  SIMT_DEVICE u32 count_bits() const {
    u32 states[3], bits = 0;
    unpack_states(entered_, states);
    walk(begin_, end_, states, [&](const Sequence& sequence, const FseStep(&steps)[3]) {
      for (u32 t = 0; t < 3; ++t) bits += steps[t].bits;
      bits += code_bits(kLiteralLengthCodes[sequence.literals_code]) +
              code_bits(kMatchLengthCodes[sequence.match_code]) +
              highest_bit(sequence.offset_value);
    });
    if (begin_ == end_ || end_ < count_) return bits;
    for (u32 t = 0; t < 3; ++t) bits += tables_.fse[t].log;
    return bits + 1;
  }

  const SequenceTables& tables_;
  Shared& shared_;
  const u64* sequences_;
  u32 count_;
  u32 begin_, end_;        // of the run, as they are written
  u32 entered_ = 0;        // the states before it
  u32 bits_ = 0, at_ = 0;  // of it, and before it
};

}  // namespace headrace::SIMT_SPACE::zstd
