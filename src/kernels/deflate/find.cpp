// Blocks of Deflate streams, found where they may begin: every bit is tried.
//
// The header of a dynamic block has much to be right: three complete codes. Of random bits, 1 in
// 1,100 passes the first of them, and of 10 million none passed all. What is found is still a
// guess: it counts when the block before ends there.

#include "kernels/deflate/block.h"
#include "kernels/deflate/stream.h"

namespace headrace::SIMT_SPACE::deflate {
namespace {

constexpr u32 kKraftOne = 128;  // sums of 2^-bits, in the code that code lengths are written in

// The code that code lengths are written in, in registers.
class SmallCountCode {
 public:
  // `bits` holds `count` lengths of 3 bits.
  SIMT_DEVICE SmallCountCode(u64 bits, u32 count) {
    u64 lengths = 0;  // of symbol s from bit 3 s on
    for (u32 i = 0; i < count; ++i) lengths |= (bits >> 3 * i & 7) << 3 * kCountCodeOrder[i];
    u32 limit = 0, index = 0;
    for (u32 n = 1; n <= 7; ++n) {
      first_ |= u64{index} << 8 * n;
      for (u32 symbol = 0; symbol < kCountCodes; ++symbol) {
        if ((lengths >> 3 * symbol & 7) != n) continue;
        if (index < kHalf)
          low_ |= u64{symbol} << 5 * index;
        else
          high_ |= u64{symbol} << 5 * (index - kHalf);
        ++index;
        limit += kKraftOne >> n;
      }
      limits_ |= u64{limit} << 8 * n;
    }
  }

  // The symbol that `window` begins with; it has `bits` bits.
  SIMT_DEVICE u32 look_up(u32 window, u32& bits) const {
    const u32 code = simt::reverse_bits(window) >> 25;
    bits = 1;
    SIMT_UNROLL
    for (u32 n = 1; n < 7; ++n) bits += code >= (limits_ >> 8 * n & 255);
    const u32 limit = limits_ >> 8 * (bits - 1) & 255;
    const u32 index = static_cast<u32>(first_ >> 8 * bits & 255) + ((code - limit) >> (7 - bits));
    return (index < kHalf ? low_ >> 5 * index : high_ >> 5 * (index - kHalf)) & 31;
  }

 private:
  static constexpr u32 kHalf = 12;
  u64 limits_ = 0, first_ = 0;  // as in Huffman, 8 bits each
  u64 low_ = 0, high_ = 0;      // symbols in order, 5 bits each
};

class HeaderBits {
 public:
  SIMT_DEVICE explicit HeaderBits(const BitSource& source)
      : words_(reinterpret_cast<const u32*>(source.quads)), count_(4 * source.quad_count) {}

  SIMT_DEVICE u32 word(u64 i) const { return i < count_ ? simt::load_constant(words_ + i) : 0; }
  SIMT_DEVICE u32 window(u64 bit) const {
    return simt::funnel_right(word(bit / 32), word(bit / 32 + 1), static_cast<u32>(bit % 32));
  }

 private:
  const u32* words_;
  u64 count_;
};

// 2^15 times the sum of 2^-bits, of the codes seen so far.
struct KraftSum {
  u32 sum = 0;
  u32 longest = 0;

  SIMT_DEVICE void add(u32 bits, u32 count) {
    if (bits == 0 || count == 0) return;
    sum += count << (kMaxCodeBits - bits);
    if (bits > longest) longest = bits;
  }
  SIMT_DEVICE bool over() const { return sum > 1u << kMaxCodeBits; }
  SIMT_DEVICE bool good() const { return sum == 1u << kMaxCodeBits || longest <= 1; }
};

// Whether the code lengths from `bit` on make codes; `counts` are the 14 bits before.
SIMT_DEVICE bool has_good_codes(const HeaderBits& source, u64 bit, u32 counts) {
  const u32 literals = (counts & 31) + 257, total = literals + (counts >> 5 & 31) + 1;
  const u32 count_codes = (counts >> 10 & 15) + 4;
  const SmallCountCode code(source.window(bit) | u64{source.window(bit + 32)} << 32, count_codes);
  bit += 3 * count_codes;
  KraftSum literal_sum, distance_sum;
  bool has_end = false;
  u32 last = 0;
  for (u32 have = 0; have < total;) {
    const u32 window = source.window(bit);
    u32 bits = 0, run = 1;
    const u32 symbol = code.look_up(window, bits), more = window >> bits;
    if (symbol < 16) {
      last = symbol;
    } else if (symbol == 16) {
      if (have == 0) return false;
      run = 3 + (more & 3);
      bits += 2;
    } else {
      last = 0;
      run = symbol == 17 ? 3 + (more & 7) : 11 + (more & 127);
      bits += symbol == 17 ? 3 : 7;
    }
    bit += bits;
    const u32 end = have + run;
    if (end > total) return false;
    has_end |= last != 0 && have <= kEndOfBlock && end > kEndOfBlock;
    if (!has_end && end > kEndOfBlock) return false;
    const u32 of_literals = have >= literals ? 0 : end < literals ? run : literals - have;
    literal_sum.add(last, of_literals);
    distance_sum.add(last, run - of_literals);
    if (literal_sum.over() || distance_sum.over()) return false;
    have = end;
  }
  return literal_sum.good() && distance_sum.good();
}

struct FindBlocks {
  static constexpr unsigned kThreads = 256;
  static constexpr u32 kWords = kSearchGroupBits / 32;
  static constexpr u32 kMost = 1024;  // of a group's bits, 60 to be expected
  struct Shared {
    u32 offsets[kMost];
    u32 count;
    u16 kraft[1 << 12];  // of four code lengths
  };

  DeflateWork work;

  SIMT_DEVICE void operator()(Shared& s) const {
    const u32 first_cell = simt::cta_index() * (kSearchGroupBits / kSearchCellBits);
    u32 index = 0;
    while (index + 1 < work.count && work.streams[index + 1].first_cell <= first_cell) ++index;
    const DeflateStream stream = work.streams[index];
    const BitSource source(stream.source, stream.source_nbytes);
    const HeaderBits bits(source);
    const u64 begin = u64{first_cell - stream.first_cell} * kSearchCellBits;
    if (simt::thread_index() == 0) s.count = 0;
    for (u32 i = simt::thread_index(); i < 1 << 12; i += kThreads) s.kraft[i] = kraft_sum(i);
    simt::sync_cta();
    for (u32 i = simt::thread_index(); i < kWords; i += kThreads) filter(s, bits, begin, i);
    simt::sync_cta();
    const u32 count = s.count < kMost ? s.count : kMost;
    for (u32 i = simt::thread_index(); i < count; i += kThreads) {
      const u64 bit = begin + s.offsets[i];
      if (bit < source.begin || bit >= source.end) continue;
      if (has_good_codes(bits, bit + 17, bits.window(bit + 3))) add(stream, index, bit);
    }
  }

 private:
  // Of the 32 positions in word i of the group, those whose first code is complete.
  SIMT_DEVICE void filter(Shared& s, const HeaderBits& bits, u64 begin, u32 i) const {
    const u64 at = begin / 32 + i;
    const u32 a = bits.word(at), b = bits.word(at + 1), c = bits.word(at + 2),
              d = bits.word(at + 3);
    const auto shifted = [&](u32 n) { return simt::funnel_right(a, b, n); };
    // A dynamic block of at most 286 and 30 codes: the counts less 257 and 1 are below 30.
    u32 left = ~shifted(1) & shifted(2) & ~(shifted(4) & shifted(5) & shifted(6) & shifted(7)) &
               ~(shifted(9) & shifted(10) & shifted(11) & shifted(12));
    for (; left; left &= left - 1) {
      const u32 r = simt::trailing_zeros(left);
      const u64 window = window_at(a, b, c, d, r + 13);
      if (!is_complete(s, window >> 4, (window & 15) + 4)) continue;
      const u32 slot = simt::atomic_add(&s.count, 1u);
      if (slot < kMost) s.offsets[slot] = 32 * i + r;
    }
  }
  SIMT_DEVICE static u64 window_at(u32 a, u32 b, u32 c, u32 d, u32 shift) {
    const bool next = shift >= 32;
    const u32 x = next ? b : a, y = next ? c : b, z = next ? d : c;
    return simt::funnel_right(x, y, shift) | u64{simt::funnel_right(y, z, shift)} << 32;
  }
  SIMT_DEVICE static u16 kraft_sum(u32 lengths) {
    u32 sum = 0;
    SIMT_UNROLL
    for (u32 i = 0; i < 12; i += 3) sum += kKraftOne >> (lengths >> i & 7) & (kKraftOne - 1);
    return static_cast<u16>(sum);
  }
  SIMT_DEVICE static bool is_complete(const Shared& s, u64 lengths, u64 count) {
    lengths &= ~(~u64{0} << 3 * count);
    u32 sum = 0;
    SIMT_UNROLL
    for (u32 i = 0; i < 60; i += 12) sum += s.kraft[lengths >> i & 0xfff];
    return sum == kKraftOne;
  }

  SIMT_DEVICE void add(const DeflateStream& stream, u32 index, u64 bit) const {
    const u32 slot = simt::atomic_add(&work.search.counts->candidates, 1u);
    if (slot >= work.search.capacity) return;
    work.search.candidates[slot] = {bit, index};
    simt::atomic_min(work.search.starts + stream.first_cell + bit / kSearchCellBits,
                     static_cast<u32>(bit % kSearchCellBits));
  }
};

}  // namespace

void find_blocks(Queue& queue, const DeflateWork& work) {
  simt::launch(
      queue, u64{work.search.capacity} * kSearchCellBits / kSearchGroupBits, FindBlocks{work});
}

}  // namespace headrace::SIMT_SPACE::deflate
