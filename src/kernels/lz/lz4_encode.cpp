// LZ4 blocks (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md) in three steps:
//
// 1. A warp a segment finds its matches, and writes all sequences but the first.
// 2. A warp a chunk lays the segments out. The literals behind a segment's last match belong to the
//    first sequence of a later segment, or to the sequence without a match that ends a chunk.
// 3. A CTA a segment writes the first sequence and copies the others to their layout.

#include "kernels/lz/lz4_encode.h"

#include <algorithm>
#include <string>

#include "headrace/error.h"
#include "kernels/common/access.h"
#include "kernels/common/encode_jobs.h"
#include "kernels/common/fault.h"
#include "kernels/common/match.h"
#include "kernels/tuning.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr u32 kSlots = 1 << 13;
constexpr u32 kMinMatch = 4;
constexpr u32 kLastLiterals = 5;     // of a block
constexpr u32 kLastMatchStart = 12;  // before the end of a block
constexpr u64 kMaxInput = 0x7e000000;

// Its items are segments; behind a chunk's segments comes an empty one for its end.
struct Chunk : EncodeJob {
  u32 segment_nbytes;

  SIMT_DEVICE u64 begin_of(u64 segment) const {
    const u64 begin = (segment - first) * segment_nbytes;
    return begin < nbytes ? begin : nbytes;
  }
  SIMT_DEVICE u32 nbytes_from(u64 begin) const {
    return nbytes - begin < segment_nbytes ? static_cast<u32>(nbytes - begin) : segment_nbytes;
  }
};

// Of a segment's sequences: no match is shorter than its token and offset.
SIMT_HOST_DEVICE constexpr u64 body_room(u32 segment_nbytes) {
  return segment_nbytes + segment_nbytes / 255 + 16;
}

// What step 1 finds: the first sequence, if there is one, and what is behind the last.
struct Segment {
  u32 literals;
  u32 match;  // bytes; 0: no sequence, and all is tail
  u32 offset;
  u32 body_nbytes;
  u32 tail;
};

// What step 2 decides, in bytes of the target.
struct Layout {
  u64 head;      // the first sequence, or the end
  u64 literals;  // of that sequence, with those of segments before
  u64 tail;      // where the tail goes
  bool fits;
};

// Of a length in a token and behind it. A segment's lengths have 32 bits, those of literals of
// several segments 64.
template <class Length>
SIMT_DEVICE Length extra_nbytes(Length length) {
  return length < 15 ? 0 : (length - 15) / 255 + 1;
}
template <class Length>
SIMT_DEVICE void put_extra(u8* out, Length length, u32 thread, u32 threads) {
  const Length n = extra_nbytes(length);
  for (Length i = thread; i < n; i += threads)
    out[i] = i + 1 < n ? 255 : static_cast<u8>((length - 15) % 255);
}
template <class Length>
SIMT_DEVICE u8 make_token(Length literals, u32 match) {
  const u32 code = match ? match - kMinMatch : 0;
  return static_cast<u8>((literals < 15 ? literals : 15) << 4 | (code < 15 ? code : 15));
}
SIMT_DEVICE u32 match_nbytes(u32 match) { return match ? 2 + extra_nbytes(match - kMinMatch) : 0; }
template <class Length>
SIMT_DEVICE Length head_nbytes(Length literals, u32 match) {
  return 1 + extra_nbytes(literals) + literals + match_nbytes(match);
}
SIMT_DEVICE void put_match(u8* out, u32 match, u32 offset, u32 thread, u32 threads) {
  if (match == 0) return;
  if (thread == 0) {
    out[0] = static_cast<u8>(offset);
    out[1] = static_cast<u8>(offset >> 8);
  }
  put_extra(out + 2, match - kMinMatch, thread, threads);
}

// By a warp: puts the sequences of a segment behind each other as their matches are found, but for
// the first, whose literals may begin in a segment before.
class BodyWriter {
 public:
  // Of a segment that begins at `begin` of `source`.
  SIMT_DEVICE BodyWriter(const u8* source, u32 begin, u8* body)
      : source_(source), body_(body), anchor_(begin) {}

  // All sequences of a window at once, each by the lane that its match starts at.
  SIMT_DEVICE void take(const LzMatches& found) {
    const u32 lane = simt::lane_index(), first = simt::trailing_zeros(found.chosen);
    const u32 before = found.chosen & lanes_below(lane);
    const u32 end = found.position + found.nbytes;
    const u32 end_before = simt::shuffle(end, before ? highest_lane(before) : 0);
    Sequence own{before ? end_before : anchor_, 0, 0, found.nbytes, false};
    own.literals = found.position - own.anchor;
    own.is_put = found.chosen >> lane & 1;
    if (segment_.match == 0) {
      segment_.literals = simt::shuffle(own.literals, first);
      segment_.match = simt::shuffle(found.nbytes, first);
      segment_.offset = simt::shuffle(found.offset, first);
      own.is_put = own.is_put && lane != first;
    }
    const u32 nbytes = own.is_put ? head_nbytes(own.literals, own.match) : 0;
    const u32 through = simt::inclusive_sum(nbytes);
    own.at = written_ + through - nbytes;
    if (own.is_put) {
      body_[own.at] = make_token(own.literals, own.match);
      u8* const offset = body_ + own.literals_at() + own.literals;
      offset[0] = static_cast<u8>(found.offset);
      offset[1] = static_cast<u8>(found.offset >> 8);
    }
    put_extras(own);
    put_literals(own, found);
    written_ += simt::shuffle(through, simt::kWarp - 1);
    anchor_ = simt::shuffle(end, highest_lane(found.chosen));
  }

  SIMT_DEVICE Segment finish(u32 end) const {
    Segment segment = segment_;
    segment.body_nbytes = written_;
    segment.tail = end - anchor_;
    return segment;
  }

 private:
  struct Sequence {
    u32 anchor;    // where its literals begin in the segment
    u32 at;        // where it begins in the body
    u32 literals;  // bytes, of these and of the match
    u32 match;
    bool is_put;

    SIMT_DEVICE u32 literals_at() const { return at + 1 + extra_nbytes(literals); }
  };

  // What lengths take behind their token: by the lane where it is a byte, else by all lanes.
  SIMT_DEVICE void put_extras(const Sequence& own) const {
    const u32 of_literals = extra_nbytes(own.literals),
              of_match = extra_nbytes(own.match - kMinMatch);
    const bool is_long = of_literals > 1 || of_match > 1;
    if (own.is_put && !is_long) {
      put_extra(body_ + own.at + 1, own.literals, 0, 1);
      put_extra(body_ + own.literals_at() + own.literals + 2, own.match - kMinMatch, 0, 1);
    }
    for (u32 open = simt::ballot(own.is_put && is_long); open; open &= open - 1) {
      const u32 from = simt::trailing_zeros(open), lane = simt::lane_index();
      const Sequence one{0,
                         simt::shuffle(own.at, from),
                         simt::shuffle(own.literals, from),
                         simt::shuffle(own.match, from),
                         true};
      put_extra(body_ + one.at + 1, one.literals, lane, simt::kWarp);
      put_extra(
          body_ + one.literals_at() + one.literals + 2, one.match - kMinMatch, lane, simt::kWarp);
    }
  }

  // Those in the window by the lane that has them; only the first sequence has some before it.
  SIMT_DEVICE void put_literals(const Sequence& own, const LzMatches& found) const {
    const u32 lane = simt::lane_index(), begin = found.position - lane;
    const u32 first = simt::trailing_zeros(found.chosen);
    const u32 behind = found.chosen & lanes_above(lane);
    const u32 next = behind ? simt::trailing_zeros(behind) : lane;
    const u32 of_next = simt::shuffle(own.is_put ? own.anchor : ~0u, next);
    const u32 to_next = simt::shuffle(own.literals_at(), next);
    if (behind && found.position >= of_next)
      body_[to_next + (found.position - of_next)] = found.byte;
    const u32 to_first = simt::shuffle(own.literals_at(), first);
    if (!simt::shuffle(own.is_put, first)) return;
    for (u32 i = lane; anchor_ + i < begin; i += simt::kWarp)
      body_[to_first + i] = source_[anchor_ + i];
  }

  const u8* source_;
  u8* body_;
  u32 anchor_;  // end of the last match
  u32 written_ = 0;
  Segment segment_{};
};

struct FindMatches {
  static constexpr unsigned kThreads = simt::kWarp;
  using Shared = MatchFinder<kMinMatch, kSlots, false>;
  Work<Chunk> chunks;
  Segment* segments;
  u8* bodies;

  SIMT_DEVICE void operator()(Shared& finder) const {
    const u64 index = simt::cta_index();
    const Chunk& chunk = chunks.find(index);
    const u64 begin = chunk.begin_of(index);
    const u32 nbytes = chunk.nbytes_from(begin);
    const u32 history = history_nbytes(begin, chunk.segment_nbytes);
    const u8* const source = chunk.source + begin - history;
    // Matches start before and end at most here.
    const u64 left = chunk.nbytes - begin;
    const u32 starts = bounded(left, kLastMatchStart - 1, nbytes, kMinMatch - 1);
    const u32 end = bounded(left, kLastLiterals, nbytes, 0);
    BodyWriter body(source, history, bodies + index * body_room(chunk.segment_nbytes));
    if (starts)
      finder.each_window({source, history, history + starts, history + end},
                         [&](const LzMatches& found) { body.take(found); });
    if (simt::lane_index() == 0) segments[index] = body.finish(history + nbytes);
  }

 private:
  SIMT_DEVICE static u32 bounded(u64 left, u32 margin, u32 nbytes, u32 own_margin) {
    if (left <= margin || nbytes <= own_margin) return 0;
    return left - margin < nbytes - own_margin ? static_cast<u32>(left - margin)
                                               : nbytes - own_margin;
  }
};

// A warp a chunk, 32 segments at a time. What a segment has behind its last match waits for the
// next head: a segment with a sequence, or the end. From the first segment on, running sums tell
// how much waits and where heads go; from the last one back, where each finds the head that it
// waits for.
struct LayOut {
  static constexpr unsigned kThreads = simt::kWarp;
  using Shared = simt::NoShared;
  Work<Chunk> chunks;
  u64 count;  // segments
  const Segment* segments;
  Layout* layouts;
  u32* faults;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 index = simt::cta_index();
    const Chunk& chunk = chunks.entries[index];
    const u64 end = index + 1 < chunks.count ? (&chunk)[1].first : count;
    const u64 nbytes = place_heads(chunk.first, end);
    const bool fits = nbytes <= chunk.capacity;
    place_tails(chunk.first, end, fits);
    if (simt::lane_index() != 0) return;
    if (!fits) raise(faults, chunk.chunk, Fault::wrong_size);
    *chunk.encoded_nbytes = fits ? nbytes : 0;
  }

 private:
  // Leaves in `tail` how much waits for the same head before it. Gives the size of all.
  SIMT_DEVICE u64 place_heads(u64 begin, u64 end) const {
    const u32 lane = simt::lane_index();
    u64 out = 0, pending = 0;
    for (u64 first = begin; first < end; first += simt::kWarp) {
      const u64 i = first + lane;
      const Segment segment = i < end ? segments[i] : Segment{};
      const bool is_head = i < end && (segment.match || i + 1 == end);
      const u64 tails = simt::inclusive_sum(u64{segment.tail}), tails_before = tails - segment.tail;
      const u32 heads = simt::ballot(is_head), before = heads & lanes_below(lane);
      const u64 taken = simt::shuffle(tails_before, before ? highest_lane(before) : 0);
      const u64 waiting = before ? tails_before - taken : pending + tails_before;
      const u64 literals = waiting + segment.literals;
      const u64 nbytes = is_head ? head_nbytes(literals, segment.match) + segment.body_nbytes : 0;
      const u64 through = simt::inclusive_sum(nbytes);
      if (i < end) layouts[i] = {out + through - nbytes, literals, is_head ? 0 : waiting, false};
      out += simt::shuffle(through, simt::kWarp - 1);
      const u64 all_taken = simt::shuffle(tails_before, heads ? highest_lane(heads) : 0);
      const u64 all = simt::shuffle(tails, simt::kWarp - 1);
      pending = heads ? all - all_taken : pending + all;
    }
    return out;
  }

  SIMT_DEVICE void place_tails(u64 begin, u64 end, bool fits) const {
    const u32 lane = simt::lane_index();
    u64 literals_of_next = 0;
    for (u64 batch = (end - begin + simt::kWarp - 1) / simt::kWarp; batch-- > 0;) {
      const u64 i = begin + batch * simt::kWarp + lane;
      const bool is_head = i < end && (segments[i].match || i + 1 == end);
      const u32 heads = simt::ballot(is_head), behind = heads & lanes_above(lane);
      const u64 own = is_head ? layouts[i].head + 1 + extra_nbytes(layouts[i].literals) : 0;
      const u64 of_next = simt::shuffle(own, behind ? simt::trailing_zeros(behind) : 0);
      if (i < end) {
        layouts[i].tail += behind ? of_next : literals_of_next;
        layouts[i].fits = fits;
      }
      if (heads) literals_of_next = simt::shuffle(own, simt::trailing_zeros(heads));
    }
  }
};

struct Assemble {
  static constexpr unsigned kThreads = 256;
  using Shared = simt::NoShared;
  Work<Chunk> chunks;
  const Segment* segments;
  const Layout* layouts;
  const u8* bodies;

  SIMT_DEVICE void operator()(Shared&) const {
    const u64 index = simt::cta_index();
    const Chunk& chunk = chunks.find(index);
    const Segment segment = segments[index];
    const Layout layout = layouts[index];
    if (!layout.fits) return;
    const u32 thread = simt::thread_index();
    const u64 begin = chunk.begin_of(index);
    const u32 nbytes = chunk.nbytes_from(begin);
    if (segment.match || nbytes == 0) {
      u8* const head = chunk.target + layout.head;
      u8* const own = head + 1 + extra_nbytes(layout.literals) + layout.literals - segment.literals;
      if (thread == 0) *head = make_token(layout.literals, segment.match);
      put_extra(head + 1, layout.literals, thread, kThreads);
      copy_bytes<kThreads>(own, chunk.source + begin, segment.literals);
      u8* const match = own + segment.literals;
      put_match(match, segment.match, segment.offset, thread, kThreads);
      copy_bytes<kThreads>(match + match_nbytes(segment.match),
                           bodies + index * body_room(chunk.segment_nbytes),
                           segment.body_nbytes);
    }
    copy_bytes<kThreads>(
        chunk.target + layout.tail, chunk.source + begin + nbytes - segment.tail, segment.tail);
  }
};

void encode_slab(Queue& queue, const EncodeBatch& batch, std::span<const Frame> frames) {
  u64 nbytes = 0, largest = 1;
  for (const Frame& frame : frames) {
    nbytes += frame.source_nbytes;
    largest = std::max(largest, frame.source_nbytes);
  }
  const u32 segment = choose_segment_nbytes(
      largest, (nbytes + largest - 1) / largest, segments_at_once<FindMatches::Shared>(queue));
  WorkList<Chunk> list;
  for (const Frame& frame : frames)
    list.add({job_of(batch, frame), segment}, (frame.source_nbytes + segment - 1) / segment + 1);
  const auto entries = list.upload(queue);
  const auto chunks = work_of(entries);
  const u64 count = list.items();
  const Scratch<Segment> segments(queue, count);
  const Scratch<Layout> layouts(queue, count);
  const Scratch<u8> bodies(queue, count * body_room(segment));
  simt::launch(queue, count, FindMatches{chunks, segments.data(), bodies.data()});
  simt::launch(
      queue, entries.size(), LayOut{chunks, count, segments.data(), layouts.data(), batch.faults});
  simt::launch(queue, count, Assemble{chunks, segments.data(), layouts.data(), bodies.data()});
}

}  // namespace

void lz4_encode(Queue& queue, const EncodeBatch& batch) {
  for (const Frame& frame : batch.frames)
    if (frame.source_nbytes > kMaxInput)
      throw Error(ErrorCode::unsupported,
                  "lz4: a block of " + std::to_string(frame.source_nbytes) + " bytes, at most " +
                      std::to_string(kMaxInput));
  each_slab(
      batch.frames,
      tuning_of(queue).lz.encode_slab_nbytes,
      [](const Frame& frame) { return frame.source_nbytes; },
      [&](std::span<const Frame> slab) { encode_slab(queue, batch, slab); });
}

}  // namespace headrace::SIMT_SPACE
