#pragma once

// The symbols of a Deflate block, by a CTA.
//
// They are one chain of Huffman codes of unknown length, so the bits are cut into segments, a lane
// each. Lanes start blind at their segment; a chain begun at a wrong bit soon falls in with the
// right one (of zlib's streams, after 150 to 600 bits on average). Each lane then starts again from
// where its left neighbour ended, until none has to, as far as its chain differs from the one
// before. The first lane starts right, so what all agree on is right, whatever the bytes: wrong
// guesses cost only time.

#include "kernels/deflate/block.h"
#include "kernels/deflate/stream.h"

namespace headrace::SIMT_SPACE::deflate {

// Of a lane, in a CTA of so many threads: few, where many streams fill the device, follow longer
// segments, of which less is read twice. The words are an odd number: lanes that read their
// segments side by side hit different banks.
template <unsigned kThreads>
struct SegmentSize {
  static constexpr unsigned kWords = kThreads >= 512 ? 15 : 31;
  static constexpr u32 kBits = kWords * 32;
  // A chain is compared with the one followed before each time it has come so far.
  static constexpr u32 kMarkBits = 240;
  static constexpr u32 kMarks = (kBits - 1) / kMarkBits;
};

// What a lane found from `start` on: up to the first end of block or invalid code, or to the end of
// its segment.
struct Segment {
  u32 start = 0;
  u32 end = 0;      // first bit of the next segment's first symbol, were there no end of block
  u32 nbytes = 0;   // output
  u32 stop = 0;     // first bit behind the end of block or invalid code
  Code reason = 0;  // kEnd, kInvalid
};

// Where the chain of a lane came to lie behind a mark.
struct ChainMark {
  u32 at;
  u32 nbytes;  // output before it
};

// Where the output of a block goes.
struct DeflateOutput {
  const DeflateWork& work;
  const DeflateStream& stream;
  u32 position;
  u32 member_start;  // no distance reaches before it
};

struct CountSymbols {
  u32 nbytes = 0;
  SIMT_DEVICE void literal(u32) { ++nbytes; }
  SIMT_DEVICE void match(u32 length, u32) { nbytes += length; }
};

// Puts a lane's output into the target, a word of four bytes at a time. What a match does not need
// of its place meanwhile is set to zero.
class WriteSymbols {
 public:
  SIMT_DEVICE WriteSymbols(const DeflateOutput& output, u32 position)
      : words_(reinterpret_cast<u32*>(output.stream.target - skew_of(output.stream.target))),
        skew_(skew_of(output.stream.target)),
        starts_(output.work.match_starts + u64{output.stream.first_tile} * (kDeflateTile / 32)),
        rests_(output.work.rests + output.stream.first_tile),
        member_start_(output.member_start),
        at_(position + skew_),
        foreign_(at_ % 4),
        bits_index_(position / 32) {}

  SIMT_DEVICE void literal(u32 byte) {
    word_ = simt::funnel_right(word_, byte, 8);
    if (++at_ % 4 == 0) store(at_ / 4 - 1, word_);
  }

  SIMT_DEVICE void match(u32 length, u32 distance) {
    const u32 position = at_ - skew_, end = position + length;
    too_far_ |= distance > position - member_start_;
    put(pack_match(length, distance), length);
    if (position / 32 != bits_index_) {
      flush_bits();
      bits_index_ = position / 32;
    }
    bits_ |= 1u << position % 32;
    const u32 tile = (end - 1) / kDeflateTile;
    if (position / kDeflateTile != tile) rests_[tile] = {end - tile * kDeflateTile, distance};
  }

  // True when all distances were good.
  SIMT_DEVICE bool finish() {
    if (at_ % 4 > foreign_) store_bytes(at_ / 4, word_ >> (32 - 8 * (at_ % 4)), at_ % 4);
    flush_bits();
    return !too_far_;
  }

 private:
  SIMT_DEVICE static u32 skew_of(const u8* target) {
    return static_cast<u32>(reinterpret_cast<std::uintptr_t>(target) & 3);
  }

  // The three bytes of a match, whose output is of that length.
  SIMT_DEVICE void put(u32 packed, u32 length) {
    const u32 used = at_ % 4, first = at_ / 4;
    const u64 bytes = used ? word_ >> (32 - 8 * used) | u64{packed} << 8 * used : packed;
    const u32 next = static_cast<u32>(bytes >> 32);
    at_ += length;
    const u32 left = at_ % 4, last = at_ / 4;
    u32 word = static_cast<u32>(bytes);  // what is known of the last word
    if (last != first) {
      store(first, word);
      word = next;
      if (last != first + 1) {
        if (used > 1) words_[first + 1] = next;
        word = 0;
      }
    }
    word_ = left ? word << (32 - 8 * left) : 0;
  }

  SIMT_DEVICE void store(u32 index, u32 word) {
    if (foreign_)
      store_bytes(index, word, 4);
    else
      words_[index] = word;
    foreign_ = 0;
  }
  SIMT_DEVICE void store_bytes(u32 index, u32 word, u32 end) const {
    u8* const bytes = reinterpret_cast<u8*>(words_ + index);
    for (u32 i = foreign_; i < end; ++i) bytes[i] = static_cast<u8>(word >> 8 * i);
  }

  SIMT_DEVICE void flush_bits() {
    if (bits_) simt::atomic_or(starts_ + bits_index_, bits_);
    bits_ = 0;
  }

  u32* words_;  // from which the target begins at byte `skew_`
  u32 skew_;
  u32* starts_;
  MatchRest* rests_;
  u32 member_start_;
  u32 at_;          // bytes from words_ on
  u32 word_ = 0;    // its upper bytes are those before `at_` in the word that `at_` lies in
  u32 foreign_;     // bytes of that word which are another lane's
  u32 bits_index_;  // of starts_, whose new bits are in bits_
  u32 bits_ = 0;
  bool too_far_ = false;
};

template <unsigned kThreads, unsigned kLiteralRoot>
struct BlockShared {
  // The longest header, a segment for each thread, and what the last symbol may need.
  Stage<kThreads * SegmentSize<kThreads>::kWords + (kMaxHeaderBits / 32 + 12) / 4 * 4> stage;
  Huffman<LiteralCodes, kLiteralRoot> literals;
  Huffman<DistanceCodes, 8> distances;
  CountTable counts;
  CodeLengths lengths;
  BlockHeader header;
  u32 code_is_good[2];
  u32 ends[kThreads];  // of the lanes' segments
  ChainMark marks[SegmentSize<kThreads>::kMarks][kThreads];
  u32 wrong[2], stopped[2];  // first lane that started wrong; that met the end
  u32 sums[kThreads / simt::kWarp];
  u32 next;  // bit behind the last lane's segment
  Code reason;
  u32 too_far;
};

// All threads of a CTA hold the same, and call all functions together.
template <unsigned kThreads, unsigned kLiteralRoot>
class BlockDecoder {
 public:
  using Shared = BlockShared<kThreads, kLiteralRoot>;
  using Size = SegmentSize<kThreads>;

  SIMT_DEVICE BlockDecoder(Shared& shared, const BitSource& source, u64 bit)
      : s(shared), source_(source), bit_(bit) {}

  SIMT_DEVICE u64 bit() const { return bit_; }
  SIMT_DEVICE void move_to(u64 bit) { bit_ = bit; }

  // Takes one block and moves behind it. With kWrite its output is written, else only counted:
  // output.position moves on. `last` tells whether it is the last of its stream. `max_rounds`
  // bounds how far it may go, in stages.
  template <bool kWrite>
  SIMT_DEVICE Fault decode(DeflateOutput& output, bool& last, u32 max_rounds = kNone) {
    load_stage();
    if (simt::warp_index() == 0) {
      const BlockHeader found =
          read_block_header(s.stage, static_cast<u32>(bit_ - stage_begin_), s.lengths, s.counts);
      if (simt::lane_index() == 0) {
        s.header = found;
        s.too_far = 0;
      }
    }
    simt::sync_cta();
    const BlockHeader header = s.header;
    last = header.last;
    bit_ = stage_begin_ + header.end;
    if (bit_ > source_.end) return Fault::truncated;
    if (header.fault != Fault::none) return header.fault;
    if (header.type == BlockType::stored) return copy_stored<kWrite>(output);
    if (!make_tables()) return Fault::malformed;
    for (u32 round = 0; round < max_rounds; ++round) {
      bool ended = false;
      const Fault fault = decode_stage<kWrite>(output, ended);
      if (fault != Fault::none || ended) return fault;
      load_stage();
    }
    return Fault::unsupported;
  }

 private:
  // Also orders what was read of the last stage, and of the tables, before what is written next.
  SIMT_DEVICE void load_stage() {
    simt::sync_cta();
    stage_begin_ = bit_ & ~u64{127};
    s.stage.load(source_, stage_begin_, simt::thread_index(), kThreads);
    simt::sync_cta();
  }

  SIMT_DEVICE bool make_tables() {
    const unsigned warp = simt::warp_index();
    if (warp < 2) {
      const bool good =
          warp == 0 ? s.literals.order(s.lengths.literals) : s.distances.order(s.lengths.distances);
      if (simt::lane_index() == 0) s.code_is_good[warp] = good;
    }
    simt::sync_cta();
    if (!s.code_is_good[0] || !s.code_is_good[1]) return false;
    s.literals.fill(simt::thread_index(), kThreads);
    s.distances.fill(simt::thread_index(), kThreads);
    simt::sync_cta();
    return true;
  }

  template <bool kWrite>
  SIMT_DEVICE Fault copy_stored(DeflateOutput& output) {
    bit_ = (bit_ + 7) & ~u64{7};
    if (source_.end < bit_ + 32) return Fault::truncated;
    const u32 nbytes = source_.byte(bit_) | source_.byte(bit_ + 8) << 8;
    const u32 check = source_.byte(bit_ + 16) | source_.byte(bit_ + 24) << 8;
    bit_ += 32;
    if ((nbytes ^ check) != 0xffff) return Fault::malformed;
    if (nbytes > (source_.end - bit_) / 8) return Fault::truncated;
    if (nbytes > output.stream.target_nbytes - output.position) return Fault::wrong_size;
    if (kWrite) copy(output.stream.target + output.position, nbytes);
    bit_ += 8 * u64{nbytes};
    output.position += nbytes;
    return Fault::none;
  }

  SIMT_DEVICE void copy(u8* to, u32 nbytes) const {
    const u32* words = reinterpret_cast<const u32*>(source_.quads);
    const u64 from = bit_ / 8;
    const u32 unaligned = static_cast<u32>(-reinterpret_cast<std::uintptr_t>(to) & 3);
    const u32 head = unaligned < nbytes ? unaligned : nbytes, body = (nbytes - head) & ~3u;
    const auto copy_bytes = [&](u32 begin, u32 end) {
      for (u32 i = begin + simt::thread_index(); i < end; i += kThreads)
        to[i] = source_.byte(bit_ + 8 * u64{i});
    };
    copy_bytes(0, head);
    for (u32 i = head + 4 * simt::thread_index(); i < head + body; i += 4 * kThreads) {
      const u64 at = from + i;
      *reinterpret_cast<u32*>(to + i) = simt::funnel_right(simt::load_constant(words + at / 4),
                                                           simt::load_constant(words + at / 4 + 1),
                                                           static_cast<u32>(at % 4 * 8));
    }
    copy_bytes(head + body, nbytes);
  }

  // Symbols from bit_ on, as far as the stage goes or the block does.
  template <bool kWrite>
  SIMT_DEVICE Fault decode_stage(DeflateOutput& output, bool& ended) {
    const u32 first = static_cast<u32>(bit_ - stage_begin_), lane = simt::thread_index();
    const u64 left = source_.end - stage_begin_;
    const u32 limit = left < kNone ? static_cast<u32>(left) : kNone;
    if (first >= limit) return Fault::truncated;
    const u32 most = (limit - first + Size::kBits - 1) / Size::kBits;
    u32 lanes = most < kThreads ? most : kThreads;
    const Segment segment = settle(first, lanes, ended);
    if (lane + 1 == lanes) {
      s.next = ended ? segment.stop : segment.end;
      s.reason = segment.reason;
    }
    u32 nbytes = lane < lanes ? segment.nbytes : 0;
    const u32 start = start_of(nbytes);
    // s.next and s.reason are final since the sync in start_of.
    bit_ = stage_begin_ + s.next;
    if (bit_ > source_.end || (bit_ == source_.end && !ended)) return Fault::truncated;
    if (ended && s.reason == kInvalid) return Fault::malformed;
    if (nbytes > output.stream.target_nbytes - output.position) return Fault::wrong_size;
    if constexpr (kWrite) {
      if (lane < lanes) {
        WriteSymbols writer(output, output.position + start);
        Segment written{segment.start, segment.start, 0, 0, 0};
        walk(written, segment.reason ? segment.stop : segment_end(first, lane), writer);
        if (!writer.finish()) s.too_far = 1;
      }
    }
    output.position += nbytes;
    simt::sync_cta();
    return s.too_far ? Fault::malformed : Fault::none;
  }

  SIMT_DEVICE static u32 segment_end(u32 first, u32 lane) {
    return first + (lane + 1) * Size::kBits;
  }

  // Makes the first `lanes` lanes agree on their starts, up to the one that meets the end of the
  // block; then `lanes` is the number of lanes up to that one.
  SIMT_DEVICE Segment settle(u32 first, u32& lanes, bool& ended) {
    const u32 lane = simt::thread_index();
    Segment segment;
    segment.start = first + lane * Size::kBits;
    bool again = lane < lanes;
    if (lane == 0) s.wrong[0] = s.stopped[0] = kNone;
    for (u32 round = 0;; ++round) {
      if (again) {
        count(segment, first + lane * Size::kBits, round > 0);
        s.ends[lane] = segment.end;
      }
      simt::sync_cta();
      const u32 start = lane == 0 ? first : s.ends[lane - 1], slot = round % 2;
      again = lane < lanes && start != segment.start;
      const u32 wrong = simt::reduce_min(again ? lane : kNone);
      const u32 stopped = simt::reduce_min(lane < lanes && segment.reason ? lane : kNone);
      if (simt::lane_index() == 0) {
        if (wrong != kNone) simt::atomic_min(&s.wrong[slot], wrong);
        if (stopped != kNone) simt::atomic_min(&s.stopped[slot], stopped);
      }
      simt::sync_cta();
      const u32 first_wrong = s.wrong[slot], first_stopped = s.stopped[slot];
      if (lane == 0) s.wrong[slot ^ 1] = s.stopped[slot ^ 1] = kNone;
      if (first_wrong == kNone || first_wrong > first_stopped) {
        ended = first_stopped != kNone;
        if (ended) lanes = first_stopped + 1;
        return segment;
      }
      if (again) segment.start = start;
    }
  }

  // Follows the chain of a lane's segment, from its start on. `again`: as far as it differs from
  // the one that was followed before, of which it is given what was found.
  SIMT_DEVICE void count(Segment& segment, u32 begin, bool again) const {
    const u32 lane = simt::thread_index();
    const Segment before = segment;
    CountSymbols counter;
    segment = {segment.start, segment.start, 0, 0, 0};
    for (u32 i = 0;; ++i) {
      const bool is_last = i == Size::kMarks;
      walk(segment, is_last ? begin + Size::kBits : begin + (i + 1) * Size::kMarkBits, counter);
      if (is_last) break;
      ChainMark& mark = s.marks[i][lane];
      if (again && mark.at == segment.end && (!before.reason || before.stop > segment.end)) {
        const u32 more = counter.nbytes - mark.nbytes;
        for (u32 k = i; k < Size::kMarks; ++k) s.marks[k][lane].nbytes += more;
        if (!segment.reason) {
          segment.reason = before.reason;
          segment.stop = before.stop;
          segment.nbytes = before.nbytes + more;
        }
        segment.end = before.end;
        return;
      }
      mark = {segment.end, counter.nbytes};
    }
    if (!segment.reason) segment.nbytes = counter.nbytes;
  }

  // Goes on with a segment, by the symbols that begin before bit `end`. Behind an end of block it
  // goes on as if there were none, so that a wrong guess of a lane does not leave its right
  // neighbour without a start.
  template <class Symbols>
  SIMT_DEVICE void walk(Segment& segment, u32 end, Symbols& symbols) const {
    u32 at = segment.end;
    while (at < end) {
      const u32* words = s.stage.words + at / 32;
      u32 low = simt::funnel_right(words[0], words[1], at);
      u32 high = simt::funnel_right(words[1], words[2], at);
      Code code = s.literals.look_up(low);
      u32 used = code_total_bits(code);
      at += used;
      // Behind a literal, 49 of the 64 bits are left: a length and its distance have 48 at most.
      if (code & kLiteral && at < end) {
        symbols.literal(code_base(code));
        low = simt::funnel_right(low, high, used);
        high >>= used;
        code = s.literals.look_up(low);
        used = code_total_bits(code);
        at += used;
      }
      Code stop = code & (kEnd | kInvalid);
      if (code & kLiteral) {
        symbols.literal(code_base(code));
      } else if (!stop) {
        const u32 window = simt::funnel_right(low, high, used);
        const Code distance = s.distances.look_up(window);
        at += code_total_bits(distance);
        stop = distance & kInvalid;
        if (!stop) symbols.match(code_value(code, low), code_value(distance, window));
      }
      if (stop && !segment.reason) {
        segment.reason = stop;
        segment.stop = at;
        if constexpr (requires { symbols.nbytes; }) segment.nbytes = symbols.nbytes;
      }
    }
    segment.end = at;
  }

  // The sum of `nbytes` over the lanes before; nbytes becomes that over all.
  SIMT_DEVICE u32 start_of(u32& nbytes) {
    const u32 up_to = simt::inclusive_sum(nbytes), own = nbytes;
    if (simt::lane_index() == simt::kWarp - 1) s.sums[simt::warp_index()] = up_to;
    simt::sync_cta();
    u32 before = 0;
    nbytes = 0;
    for (unsigned w = 0; w < kThreads / simt::kWarp; ++w) {
      if (w == simt::warp_index()) before = nbytes;
      nbytes += s.sums[w];
    }
    return before + up_to - own;
  }

  Shared& s;
  const BitSource& source_;
  u64 bit_;
  u64 stage_begin_ = 0;  // bit of the first one staged
};

}  // namespace headrace::SIMT_SPACE::deflate
