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
  // `bits` holds `count` lengths of 3 bits, which make a complete code.
  SIMT_DEVICE SmallCountCode(u64 bits, u32 count) {
    bits &= ~(~u64{0} << 3 * count);
    u64 counts = 0;  // of lengths, 8 bits each
    SIMT_UNROLL
    for (u32 symbol = 0; symbol < kCountCodes; ++symbol)
      counts += u64{1} << 8 * length_of(bits, symbol);
    u64 next = 0;  // index of the next symbol of each length
    u32 limit = 0, index = 0;
    SIMT_UNROLL
    for (u32 n = 1; n <= 7; ++n) {
      // Codes of n bits begin at `limit`, in 7 bits, of which the upper n count.
      offsets_ |= u64{(index - (limit >> (7 - n))) & 255} << 8 * n;
      next |= u64{index} << 8 * n;
      const u32 same = counts >> 8 * n & 255;
      index += same;
      limit += same << (7 - n);
      if (n < 7) below_ |= u64{kKraftOne - limit} << 8 * (n - 1);
    }
    SIMT_UNROLL
    for (u32 symbol = 0; symbol < kCountCodes; ++symbol) {
      const u32 n = length_of(bits, symbol);
      if (n == 0) continue;
      const u32 at = next >> 8 * n & 255;
      next += u64{1} << 8 * n;
      if (at < kHalf)
        low_ |= u64{symbol} << 5 * at;
      else
        high_ |= u64{symbol} << 5 * (at - kHalf);
    }
  }

  // The symbol that `window` begins with; it has `bits` bits.
  SIMT_DEVICE u32 look_up(u32 window, u32& bits) const {
    const u32 code = simt::reverse_bits(window) >> 25;
    // The uppermost bits of bytes that a code no shorter than that of the byte brings to 128.
    const u32 low = static_cast<u32>(below_) + code * 0x01010101u,
              high = static_cast<u32>(below_ >> 32) + code * 0x0101u;
    bits = 1 + simt::popcount((low & 0x80808080) | (high & 0x8080) >> 1);
    const u32 offset =
        simt::permute_bytes(static_cast<u32>(offsets_), static_cast<u32>(offsets_ >> 32), bits);
    const u32 at = ((code >> (7 - bits)) + offset) & 255;
    return static_cast<u32>(at < kHalf ? low_ >> 5 * at : high_ >> 5 * (at - kHalf)) & 31;
  }

 private:
  static constexpr u32 kHalf = 12;

  SIMT_DEVICE static u32 length_of(u64 bits, u32 symbol) {
    // Where it is in kCountCodeOrder.
    const u32 place = symbol >= 16  ? symbol - 16
                      : symbol == 0 ? 3
                      : symbol < 8  ? 19 - 2 * symbol
                                    : 2 * symbol - 12;
    return bits >> 3 * place & 7;
  }

  u64 below_ = 0;           // of n bits, 8 bits each from n = 1: 128 less the first longer code
  u64 offsets_ = 0;         // of n bits, 8 bits each: what makes an index of a code, modulo 256
  u64 low_ = 0, high_ = 0;  // symbols in order, 5 bits each
};

// Words of a source, from the one that `bit` lies in on.
class HeaderBits {
 public:
  SIMT_DEVICE HeaderBits(const BitSource& source, u64 bit)
      : words_(reinterpret_cast<const u32*>(source.quads) + bit / 32) {
    const u64 count = 4 * source.quad_count, first = bit / 32;
    const u64 left = count > first ? count - first : 0;
    count_ = left < kNone ? static_cast<u32>(left) : kNone;
  }

  SIMT_DEVICE u32 word(u32 i) const { return i < count_ ? simt::load_constant(words_ + i) : 0; }
  SIMT_DEVICE u32 window(u32 bit) const {
    return simt::funnel_right(word(bit / 32), word(bit / 32 + 1), bit % 32);
  }

 private:
  const u32* words_;
  u32 count_;
};

// 2^15 times the sum of 2^-bits of a code, and whether it may be one: complete, or of a single bit,
// or of nothing.
constexpr u32 kWhole = 1u << kMaxCodeBits;
SIMT_DEVICE bool may_be_code(u32 sum) { return sum == kWhole || sum == kWhole / 2 || sum == 0; }

// A header has one to 316 code lengths to be read, 40 in the mean until it shows to be none, and a
// warp waits for the last of its lanes. So those that are in doubt after a few are gathered first.
constexpr u32 kFirstLengths = 32;
enum class Header : u32 { good, bad, unknown };

// Whether the code lengths of a block at `bit` make codes, told after `most` of them at the latest.
SIMT_DEVICE Header check_header(const HeaderBits& source, u32 bit, u32 most) {
  const u32 counts = source.window(bit + 3);
  const u32 literals = (counts & 31) + 257, total = literals + (counts >> 5 & 31) + 1;
  const u32 count_codes = (counts >> 10 & 15) + 4;
  const SmallCountCode code(source.window(bit + 17) | u64{source.window(bit + 49)} << 32,
                            count_codes);
  bit += 17 + 3 * count_codes;
  u32 literal_sum = 0, distance_sum = 0, last = 0, have = 0;
  for (; have < total; --most) {
    if (most == 0) return Header::unknown;
    const u32 window = source.window(bit);
    u32 bits = 0;
    const u32 symbol = code.look_up(window, bits), more = window >> bits;
    // Of a length, 16, 17, 18: the shortest run, and how many bits say how much longer it is.
    const u32 kind = symbol < 16 ? 0 : symbol - 15;
    const u32 more_bits = 0x7320 >> 4 * kind & 15, run_min = 0xb331 >> 4 * kind & 15;
    const u32 run = run_min + (more & ~(~0u << more_bits));
    if (kind == 1 && have == 0) return Header::bad;
    if (kind != 1) last = kind == 0 ? symbol : 0;
    bit += bits + more_bits;
    const u32 end = have + run;
    // The end of block has a code.
    if (end > total || (last == 0 && have <= kEndOfBlock && end > kEndOfBlock)) return Header::bad;
    const u32 of_literals = (end < literals ? end : literals) - (have < literals ? have : literals);
    const u32 part = last ? kWhole >> last : 0;
    literal_sum += of_literals * part;
    distance_sum += (run - of_literals) * part;
    if (literal_sum > kWhole || distance_sum > kWhole) return Header::bad;
    have = end;
  }
  return may_be_code(literal_sum) && may_be_code(distance_sum) ? Header::good : Header::bad;
}

// Of the 32 positions in a word at once, of which `bits(n)` gives the bit that lies n behind each:
// those where the sum that is_complete makes has zeros as its lowest three bits, as kKraftOne does.
// Of random bits these are 1 in 8.
template <class Bits>
SIMT_DEVICE u32 may_be_complete(const Bits& bits) {
  static_assert(kKraftOne % 8 == 0);
  // There are four lengths, and as many more as these four bits say.
  const u32 count[] = {bits(13), bits(14), bits(15), bits(16)};
  const u32 low_is_over[] = {~0u, count[0] | count[1], count[1], count[0] & count[1]};
  const u32 high_is[] = {
      ~count[2] & ~count[3], count[2] & ~count[3], ~count[2] & count[3], count[2] & count[3]};
  const u32 high_is_over[] = {count[2] | count[3], count[3], count[2] & count[3], 0};
  u32 ones = 0, twos = 0, fours = 0;
  SIMT_UNROLL
  for (u32 i = 0; i < kCountCodes; ++i) {
    const u32 a = bits(17 + 3 * i), b = bits(18 + 3 * i);
    u32 c = bits(19 + 3 * i);
    if (i >= 4) {
      const u32 least = i - 3;  // that the count must be
      c &= high_is_over[least / 4] | (high_is[least / 4] & low_is_over[least % 4]);
    }
    const u32 seven = a & b & c, six = ~a & b & c, five = a & ~b & c;
    const u32 carry = ones & seven;
    ones ^= seven;
    fours ^= five ^ ((twos & six) | (twos & carry) | (six & carry));
    twos ^= six ^ carry;
  }
  return ~(ones | twos | fours);
}

// Positions in a group, in any order; beyond `kMost` they are lost, which costs time only.
template <u32 kMost>
struct PositionList {
  u16 positions[kMost];
  u32 count;

  SIMT_DEVICE u32 size() const { return count < kMost ? count : kMost; }
  SIMT_DEVICE void add(u32 position) {
    const u32 slot = simt::atomic_add(&count, 1u);
    if (slot < kMost) positions[slot] = static_cast<u16>(position);
  }
  // For a warp: those of `first` and the 31 behind it whose bits are set, a word a lane.
  SIMT_DEVICE void add_bits(u32 first, u32 bits) {
    const u32 own = simt::popcount(bits), up_to = simt::inclusive_sum(own);
    u32 slot = 0;
    if (simt::lane_index() == simt::kWarp - 1) slot = simt::atomic_add(&count, up_to);
    slot = simt::shuffle(slot, simt::kWarp - 1) + up_to - own;
    for (; bits && slot < kMost; bits &= bits - 1)
      positions[slot++] = static_cast<u16>(first + simt::trailing_zeros(bits));
  }
};

SIMT_DEVICE void add_candidate(const DeflateWork& work, BlockCandidate candidate) {
  const BlockSearch& search = work.search;
  const u32 slot = simt::atomic_add(&search.counts->candidates, 1u);
  if (slot >= search.capacity) return;
  search.candidates[slot] = candidate;
  const u64 cell = work.streams[candidate.stream].first_cell + candidate.bit / kSearchCellBits;
  simt::atomic_min(search.starts + cell, static_cast<u32>(candidate.bit % kSearchCellBits));
}
SIMT_DEVICE void add_doubtful(const BlockSearch& search, BlockCandidate candidate) {
  const u32 slot = simt::atomic_add(&search.counts->doubtful, 1u);
  if (slot < kDoubtfulACell * search.capacity) search.doubtful[slot] = candidate;
}

struct FindBlocks {
  static constexpr unsigned kThreads = 256;
  static constexpr u32 kWords = kSearchGroupBits / 32;
  // Positions of a group: those that may_be_complete leaves, and those whose first code is
  // complete. Of random bits 1,800 and 50 are to be expected.
  static constexpr u32 kMostLeft = 4096, kMostComplete = 1024;

  struct Shared {
    PositionList<kMostLeft> left;
    PositionList<kMostComplete> complete;
    u16 kraft[64];  // of two code lengths
  };
  static_assert(kSearchGroupBits <= 1 << 16);

  DeflateWork work;

  SIMT_DEVICE void operator()(Shared& s) const {
    const unsigned thread = simt::thread_index();
    const u32 first_cell = simt::cta_index() * (kSearchGroupBits / kSearchCellBits);
    u32 index = 0;
    while (index + 1 < work.count && work.streams[index + 1].first_cell <= first_cell) ++index;
    const DeflateStream stream = work.streams[index];
    const BitSource source(stream.source, stream.source_nbytes);
    const u64 begin = u64{first_cell - stream.first_cell} * kSearchCellBits;
    const HeaderBits bits(source, begin);
    if (thread == 0) s.left.count = s.complete.count = 0;
    if (thread < 64) s.kraft[thread] = static_cast<u16>(kraft(thread & 7) + kraft(thread >> 3));
    simt::sync_cta();
    for (u32 i = thread; i < kWords; i += kThreads)
      s.left.add_bits(32 * i, positions_left(bits, i));
    simt::sync_cta();
    for (u32 i = thread; i < s.left.size(); i += kThreads)
      if (is_complete(s, bits, s.left.positions[i])) s.complete.add(s.left.positions[i]);
    simt::sync_cta();
    for (u32 i = thread; i < s.complete.size(); i += kThreads) {
      const u64 bit = begin + s.complete.positions[i];
      if (bit < source.begin || bit >= source.end) continue;
      const Header header = check_header(bits, s.complete.positions[i], kFirstLengths);
      if (header == Header::good) add_candidate(work, {bit, index});
      if (header == Header::unknown) add_doubtful(work.search, {bit, index});
    }
  }

 private:
  // Of the 32 positions in a word, those where a block may begin, by what may_be_complete tells.
  SIMT_DEVICE static u32 positions_left(const HeaderBits& bits, u32 word) {
    const u32 words[] = {
        bits.word(word), bits.word(word + 1), bits.word(word + 2), bits.word(word + 3)};
    const auto shifted = [&](u32 n) {
      return n % 32 ? simt::funnel_right(words[n / 32], words[n / 32 + 1], n % 32) : words[n / 32];
    };
    // A dynamic block of at most 286 and 30 codes: the counts less 257 and 1 are below 30.
    return ~shifted(1) & shifted(2) & ~(shifted(4) & shifted(5) & shifted(6) & shifted(7)) &
           ~(shifted(9) & shifted(10) & shifted(11) & shifted(12)) & may_be_complete(shifted);
  }

  SIMT_DEVICE static u32 kraft(u32 length) { return kKraftOne >> length & (kKraftOne - 1); }
  // Whether the code that the code lengths of a block at `bit` are written in is complete.
  SIMT_DEVICE static bool is_complete(const Shared& s, const HeaderBits& bits, u32 bit) {
    const u32 count = (bits.window(bit + 13) & 15) + 4;
    u64 lengths = bits.window(bit + 17) | u64{bits.window(bit + 49)} << 32;
    lengths &= ~(~u64{0} << 3 * count);
    u32 sum = 0;
    SIMT_UNROLL
    for (u32 i = 0; i < 60; i += 6) sum += s.kraft[lengths >> i & 63];
    return sum == kKraftOne;
  }
};

// A thread a header that FindBlocks did not come to the end of.
struct CheckDoubtful {
  static constexpr unsigned kThreads = 128;
  using Shared = simt::NoShared;

  DeflateWork work;

  SIMT_DEVICE void operator()(Shared&) const {
    const BlockSearch& search = work.search;
    const u32 i = simt::cta_index() * kThreads + simt::thread_index();
    if (i >= search.counts->doubtful || i >= kDoubtfulACell * search.capacity) return;
    const BlockCandidate candidate = search.doubtful[i];
    const DeflateStream& stream = work.streams[candidate.stream];
    const HeaderBits bits(BitSource(stream.source, stream.source_nbytes), candidate.bit);
    if (check_header(bits, static_cast<u32>(candidate.bit % 32), kNone) == Header::good)
      add_candidate(work, candidate);
  }
};

}  // namespace

void find_blocks(Queue& queue, const DeflateWork& work) {
  const u64 cells = work.search.capacity;
  simt::launch(queue, cells * kSearchCellBits / kSearchGroupBits, FindBlocks{work});
  simt::launch(queue,
               (kDoubtfulACell * cells + CheckDoubtful::kThreads - 1) / CheckDoubtful::kThreads,
               CheckDoubtful{work});
}

}  // namespace headrace::SIMT_SPACE::deflate
