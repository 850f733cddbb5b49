// LZ4 blocks (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md) in three steps:
//
// 1. A warp a segment finds matches inside the segment, and writes all sequences but the first.
// 2. A thread a chunk lays the segments out. The literals behind a segment's last match belong to
// the
//    first sequence of a later segment, or to the sequence without a match that ends a chunk.
// 3. A CTA a segment writes the first sequence and copies the others to their layout.

#include "kernels/lz/lz4_encode.h"

#include <string>

#include "headrace/error.h"
#include "kernels/common/access.h"
#include "kernels/common/encode_jobs.h"
#include "kernels/common/fault.h"
#include "kernels/common/match.h"
#include "kernels/tuning.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr u32 kSegment = 65536;  // the farthest offset is one less
constexpr u32 kBody = kSegment + kSegment / 255 + 16;
constexpr u32 kHashBits = 13;
constexpr u32 kMinMatch = 4;
constexpr u32 kLastLiterals = 5;     // of a block
constexpr u32 kLastMatchStart = 12;  // before the end of a block
constexpr u64 kMaxInput = 0x7e000000;

// Its items are segments; behind a chunk's segments comes an empty one for its end.
struct Chunk : EncodeJob {
  SIMT_DEVICE u64 begin_of(u64 segment) const {
    const u64 begin = (segment - first) * kSegment;
    return begin < nbytes ? begin : nbytes;
  }
  SIMT_DEVICE u32 nbytes_from(u64 begin) const {
    return nbytes - begin < kSegment ? static_cast<u32>(nbytes - begin) : kSegment;
  }
};

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

// Of a length in a token and behind it.
SIMT_DEVICE u64 extra_nbytes(u64 length) { return length < 15 ? 0 : (length - 15) / 255 + 1; }
SIMT_DEVICE void put_extra(u8* out, u64 length, u32 thread, u32 threads) {
  const u64 n = extra_nbytes(length);
  for (u64 i = thread; i < n; i += threads)
    out[i] = i + 1 < n ? 255 : static_cast<u8>((length - 15) % 255);
}
SIMT_DEVICE u8 make_token(u64 literals, u32 match) {
  const u32 code = match ? match - kMinMatch : 0;
  return static_cast<u8>((literals < 15 ? literals : 15) << 4 | (code < 15 ? code : 15));
}
SIMT_DEVICE u64 match_nbytes(u32 match) { return match ? 2 + extra_nbytes(match - kMinMatch) : 0; }
SIMT_DEVICE u64 head_nbytes(u64 literals, u32 match) {
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
SIMT_DEVICE void copy_bytes(u8* to, const u8* from, u64 nbytes, u32 thread, u32 threads) {
  for (u64 i = thread; i < nbytes; i += threads) to[i] = from[i];
}

struct FindMatches {
  static constexpr unsigned kThreads = simt::kWarp;
  using Shared = MatchFinder<kMinMatch, kHashBits>;
  Work<Chunk> chunks;
  Segment* segments;
  u8* bodies;

  SIMT_DEVICE void operator()(Shared& finder) const {
    const u64 index = simt::cta_index();
    const Chunk& chunk = chunks.find(index);
    const unsigned lane = simt::lane_index();
    const u64 begin = chunk.begin_of(index);
    const u32 nbytes = chunk.nbytes_from(begin);
    const u8* const source = chunk.source + begin;
    finder.clear();

    // Matches start before and end at most here.
    const u64 left = chunk.nbytes - begin;
    const u32 starts = bounded(left, kLastMatchStart - 1, nbytes, kMinMatch - 1);
    const u32 end = bounded(left, kLastLiterals, nbytes, 0);
    Segment segment{};
    u8* const body = bodies + index * kBody;
    u32 written = 0, anchor = 0;
    for (u32 at = 0; at < starts;) {
      const LzMatch match = finder.find(source, at, starts, end);
      if (match.nbytes == 0) {
        at += simt::kWarp;
        continue;
      }
      const u32 literals = match.at - anchor;
      if (segment.match == 0) {
        segment.literals = literals;
        segment.match = match.nbytes;
        segment.offset = match.offset;
      } else {
        written += put_sequence(body + written, source + anchor, literals, match);
      }
      finder.insert(source, match, starts);
      at = anchor = match.at + match.nbytes;
    }
    segment.body_nbytes = written;
    segment.tail = nbytes - anchor;
    if (lane == 0) segments[index] = segment;
  }

 private:
  SIMT_DEVICE static u32 bounded(u64 left, u32 margin, u32 nbytes, u32 own_margin) {
    if (left <= margin || nbytes <= own_margin) return 0;
    return left - margin < nbytes - own_margin ? static_cast<u32>(left - margin)
                                               : nbytes - own_margin;
  }

  SIMT_DEVICE static u32 put_sequence(u8* out,
                                      const u8* literals_from,
                                      u32 literals,
                                      const LzMatch& match) {
    const unsigned lane = simt::lane_index();
    const u32 extra = static_cast<u32>(extra_nbytes(literals));
    if (lane == 0) out[0] = make_token(literals, match.nbytes);
    put_extra(out + 1, literals, lane, simt::kWarp);
    copy_bytes(out + 1 + extra, literals_from, literals, lane, simt::kWarp);
    put_match(out + 1 + extra + literals, match.nbytes, match.offset, lane, simt::kWarp);
    return static_cast<u32>(head_nbytes(literals, match.nbytes));
  }
};

struct LayOut {
  static constexpr unsigned kThreads = simt::kWarp;
  using Shared = simt::NoShared;
  Work<Chunk> chunks;
  u64 count;  // segments
  const Segment* segments;
  Layout* layouts;
  u32* faults;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 index = simt::cta_index() * kThreads + simt::thread_index();
    if (index >= chunks.count) return;
    const Chunk& chunk = chunks.entries[index];
    const u64 end = index + 1 < chunks.count ? (&chunk)[1].first : count;
    u64 out = 0, pending = 0, pending_from = chunk.first;
    for (u64 i = chunk.first; i < end; ++i) {
      const Segment segment = segments[i];
      if (segment.match == 0 && i + 1 < end) {
        pending += segment.tail;
        continue;
      }
      const u64 literals = pending + segment.literals;
      layouts[i].head = out;
      layouts[i].literals = literals;
      u64 tail = out + 1 + extra_nbytes(literals);
      for (; pending_from < i; ++pending_from) {
        layouts[pending_from].tail = tail;
        tail += segments[pending_from].tail;
      }
      out += head_nbytes(literals, segment.match) + segment.body_nbytes;
      pending = segment.tail;
    }
    const bool fits = out <= chunk.capacity;
    for (u64 i = chunk.first; i < end; ++i) layouts[i].fits = fits;
    if (!fits) raise(faults, chunk.chunk, Fault::wrong_size);
    *chunk.encoded_nbytes = fits ? out : 0;
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
      copy_bytes(own, chunk.source + begin, segment.literals, thread, kThreads);
      u8* const match = own + segment.literals;
      put_match(match, segment.match, segment.offset, thread, kThreads);
      copy_bytes(match + match_nbytes(segment.match),
                 bodies + index * kBody,
                 segment.body_nbytes,
                 thread,
                 kThreads);
    }
    if (segment.tail == 0) return;
    copy_bytes(chunk.target + layout.tail,
               chunk.source + begin + nbytes - segment.tail,
               segment.tail,
               thread,
               kThreads);
  }
};

void encode_slab(Queue& queue, const EncodeBatch& batch, std::span<const Frame> frames) {
  WorkList<Chunk> list;
  for (const Frame& frame : frames)
    list.add({job_of(batch, frame)}, (frame.source_nbytes + kSegment - 1) / kSegment + 1);
  const auto entries = list.upload(queue);
  const auto chunks = work_of(entries);
  const u64 count = list.items();
  const Scratch<Segment> segments(queue, count);
  const Scratch<Layout> layouts(queue, count);
  const Scratch<u8> bodies(queue, count * kBody);
  simt::launch(queue, count, FindMatches{chunks, segments.data(), bodies.data()});
  simt::launch(queue,
               (entries.size() + simt::kWarp - 1) / simt::kWarp,
               LayOut{chunks, count, segments.data(), layouts.data(), batch.faults});
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
