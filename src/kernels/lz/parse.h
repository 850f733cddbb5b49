#pragma once

// The tokens of many LZ streams, each stream by many threads.
//
// A stream is cut into segments, a group of segments is one warp's. Every lane starts at the first
// byte of its segment as if a token began there, and then again where its left neighbour ended,
// until nothing changes: chains that start at different bytes soon meet. The first lanes warm up on
// the segments before the group (guess). Then one warp a stream proves from the stream's
// start that each group ends where the next one began, and repairs those that do not (join): a
// wrong guess costs time, never bytes. Records are written last, when all sums are known (write).

#include "kernels/common/fault.h"
#include "kernels/lz/stream.h"

namespace headrace::SIMT_SPACE {

// A stretch of a chain: from the first token at or after some byte to the first one that is not in
// the stretch, or a bad end.
struct alignas(16) LzStretch {
  u32 entry, exit;
  u32 tokens, nbytes;
};

template <class Dialect>
SIMT_DEVICE void follow(const u8* p, u32 end, u32 stop, LzStretch& stretch) {
  u32 x = stretch.entry, tokens = 0, nbytes = 0;
  while (x < stop) {
    const LzStep step = step_at<Dialect>(p, x, end);
    x = step.next;
    ++tokens;
    nbytes = saturating_add(nbytes, step.nbytes);
  }
  stretch.exit = x;
  stretch.tokens = tokens;
  stretch.nbytes = nbytes;
}

SIMT_DEVICE u32 from_left(u32 value, u32 first) {
  const u32 left = simt::shuffle_up(value, 1);
  return simt::lane_index() == 0 ? first : left;
}

// Lanes hold consecutive segments. Walks again until every entry is the exit to the left of it, but
// for exits beyond `limit`.
template <class Dialect>
SIMT_DEVICE void settle(
    const u8* p, u32 end, u32 stop, u32 first, LzStretch& stretch, u32 limit = ~u32{0}) {
  for (;;) {
    const u32 entry = from_left(stretch.exit, first);
    const bool wrong = entry != stretch.entry && entry <= limit;
    if (!simt::any(wrong)) return;
    if (!wrong) continue;
    stretch.entry = entry;
    follow<Dialect>(p, end, stop, stretch);
  }
}

// Bytes of both tables below, a group.
template <class Cut>
inline constexpr u32 kLzStretches = (Cut::kSegments + 1) * sizeof(LzStretch);

struct LzTables {
  LzBatch batch;
  u32 n_groups;
  LzStretch* segments;  // Cut::kSegments a group
  // Of a group. After the join: its entry, the first record's index, tokens, the first byte.
  LzStretch* groups;
};

template <class Dialect>
struct LzGuess {
  using Cut = typename Dialect::Guess;
  static constexpr unsigned kThreads = 128;
  static constexpr u32 kWarmUp = simt::kWarp - Cut::kSegments;
  using Shared = simt::NoShared;
  LzTables tables;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 group = simt::cta_index() * (kThreads / simt::kWarp) + simt::warp_index();
    if (group >= tables.n_groups) return;
    const u32 lane = simt::lane_index();
    const u32 w = find_stream<&LzStream::first_group>(tables.batch, group);
    if (tables.batch.is_scouted(w)) return;
    const LzStream stream = tables.batch.streams[w];
    const u32 end = stream.source_nbytes, base = (group - stream.first_group) * Cut::kGroup;
    const i64 low = i64{base} + (i64{lane} - kWarmUp) * Cut::kSegment;
    const u32 stop = clamp(low + Cut::kSegment, end);
    LzStretch stretch{};
    stretch.entry = low <= 0 ? Dialect::start(stream) : clamp(low, end);
    follow<Dialect>(stream.source, end, stop, stretch);
    // A wrong chain may jump far or break off: no reason yet to give up one's own.
    settle<Dialect>(stream.source,
                    end,
                    stop,
                    simt::shuffle(stretch.entry, 0),
                    stretch,
                    simt::shuffle(stop, simt::kWarp - 1));
    const u32 entry = simt::shuffle(stretch.entry, kWarmUp);
    if (lane < kWarmUp) stretch = {entry, entry, 0, 0};
    settle<Dialect>(stream.source, end, stop, entry, stretch);

    if (lane >= kWarmUp) tables.segments[u64{group} * Cut::kSegments + lane - kWarmUp] = stretch;
    const u32 tokens = simt::reduce_add(stretch.tokens), nbytes = saturating_sum(stretch.nbytes);
    const u32 exit = simt::shuffle(stretch.exit, simt::kWarp - 1);
    if (lane == 0) tables.groups[group] = {entry, exit, tokens, nbytes};
  }

  SIMT_DEVICE static u32 clamp(i64 x, u32 end) {
    return x < 0 ? 0 : x < i64{end} ? static_cast<u32>(x) : end;
  }
};

// Whether a chain that ends like this is the whole stream; raises what is wrong.
SIMT_DEVICE bool is_good(const LzBatch& batch, const LzStream& stream, u32 at, u64 nbytes) {
  Fault fault = Fault::none;
  if (at == kTruncated)
    fault = Fault::truncated;
  else if (at == kMalformed)
    fault = Fault::malformed;
  else if (at == kWrongSize || nbytes != stream.target_nbytes)
    fault = Fault::wrong_size;
  if (fault != Fault::none) raise(batch.faults, stream.chunk, fault);
  return fault == Fault::none;
}

// One warp a stream.
template <class Dialect, class Cut>
struct LzJoin {
  static constexpr unsigned kThreads = 32;
  using Shared = simt::NoShared;
  LzTables tables;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 w = simt::cta_index(), lane = simt::lane_index();
    if (tables.batch.is_scouted(w)) return;
    const LzStream stream = tables.batch.streams[w];
    const u32 end = stream.source_nbytes, n = (end + Cut::kGroup - 1) / Cut::kGroup;
    u32 at = Dialect::start(stream);  // where the proved chain stands
    u64 tokens = 0, nbytes = 0;       // up to there
    LzStretch next{};
    if (lane < n) next = tables.groups[stream.first_group + lane];
    for (u32 done = 0; done < n; done += simt::kWarp) {
      LzStretch group = next;
      const bool live = done + lane < n;
      const u32 low = (done + lane) * Cut::kGroup;
      const u32 high = live && end - low < Cut::kGroup ? end : low + Cut::kGroup;
      if (done + simt::kWarp + lane < n)
        next = tables.groups[stream.first_group + done + simt::kWarp + lane];
      for (;;) {
        const u32 entry = from_left(group.exit, at);
        const u32 wrong = simt::ballot(live && entry != group.entry);
        if (!wrong) break;
        const u32 k = simt::trailing_zeros(wrong), from = simt::shuffle(entry, k);
        // Long literals span several groups, which then have no token.
        const bool spanned = live && lane >= k && high <= from;
        if (spanned) group = {from, from, 0, 0};
        if (simt::any(spanned)) continue;
        const LzStretch right = repair(stream, done + k, from);
        if (lane == k) group = right;
      }
      const u64 my_tokens = live ? group.tokens : 0, my_nbytes = live ? group.nbytes : 0;
      const u64 to_token = simt::inclusive_sum(my_tokens), to_byte = simt::inclusive_sum(my_nbytes);
      if (live)
        tables.groups[stream.first_group + done + lane] = {
            group.entry,
            static_cast<u32>(tokens + to_token - my_tokens),
            group.tokens,
            static_cast<u32>(nbytes + to_byte - my_nbytes)};
      at = simt::shuffle(group.exit, n - 1 - done < 31 ? n - 1 - done : 31);
      tokens += simt::shuffle(to_token, 31);
      nbytes += simt::shuffle(to_byte, 31);
    }
    if (lane != 0) return;
    const bool good = is_good(tables.batch, stream, at, nbytes);
    tables.batch.parsed[w] = good ? tables.batch.take(tokens) : LzParsed{};
  }

  // Group `index` of the stream with its true entry, which lies in it.
  SIMT_DEVICE LzStretch repair(const LzStream& stream, u32 index, u32 entry) const {
    const u32 lane = simt::lane_index(), end = stream.source_nbytes, base = index * Cut::kGroup;
    const u32 room = end - base, group = room < Cut::kGroup ? room : Cut::kGroup;
    const bool mine = lane < Cut::kSegments;
    LzStretch* segments = tables.segments + u64{stream.first_group + index} * Cut::kSegments;
    const u32 far = (lane + 1) * Cut::kSegment;
    const u32 stop = !mine ? 0 : base + (far < group ? far : group);
    LzStretch stretch{};
    u32 exit = walk_few(stream, entry, base + lane * Cut::kSegment, stop, base + group, stretch);
    if (exit < base + group) {
      stretch = mine ? segments[lane] : LzStretch{};
      settle<Dialect>(stream.source, end, stop, entry, stretch);
      exit = simt::shuffle(stretch.exit, Cut::kSegments - 1);
    }
    if (mine) segments[lane] = stretch;
    return {entry, exit, simt::reduce_add(stretch.tokens), saturating_sum(stretch.nbytes)};
  }

  // All lanes walk from x on, as far as a few tokens go; each keeps those of its segment. Where
  // literals are long, this is all of a group, and all guesses were wrong.
  SIMT_DEVICE static u32 walk_few(
      const LzStream& stream, u32 x, u32 low, u32 stop, u32 group_end, LzStretch& stretch) {
    for (u32 i = 0; i < Dialect::kFew && x < group_end; ++i) {
      const LzStep step = step_at<Dialect>(stream.source, x, stream.source_nbytes);
      if (x >= low && x < stop) {
        if (stretch.tokens++ == 0) stretch.entry = x;
        stretch.nbytes = saturating_add(stretch.nbytes, step.nbytes);
      }
      x = step.next;
    }
    return x;
  }
};

// Walks every segment again, now that it is known where it begins and what comes before. Records
// pass through shared memory, to be written in order: the position in the group, and above that
// where the output begins, from the group's on.
template <class Dialect, class Cut>
struct LzWrite {
  static constexpr unsigned kThreads = 128;
  static constexpr u32 kStaged = 1536;  // of a group, as many as all but a few have
  static constexpr u32 kPositionBits = 14;
  static_assert(Cut::kGroup <= 1 << kPositionBits);
  struct Shared {
    u32 staged[kThreads / simt::kWarp][kStaged];
  };
  LzTables tables;  // the batch in one of its waves

  SIMT_DEVICE void operator()(Shared& shared) const {
    const u32 index = simt::cta_index() * (kThreads / simt::kWarp) + simt::warp_index();
    if (index >= tables.n_groups || tables.batch.is_done()) return;
    const u32 lane = simt::lane_index();
    const u32 w = find_stream<&LzStream::first_group>(tables.batch, index);
    const LzRecords of_stream = tables.batch.records_of(w);
    if (of_stream.n == 0) return;
    const LzStream stream = tables.batch.streams[w];
    if (index == stream.first_group && lane == 0) LzBatch::put_end(of_stream, stream);
    const LzStretch group = tables.groups[index];
    if (group.tokens == 0) return;
    LzStretch stretch{};
    if (lane < Cut::kSegments) stretch = tables.segments[u64{index} * Cut::kSegments + lane];
    const u32 before = simt::inclusive_sum(stretch.tokens) - stretch.tokens;
    const u32 start = simt::inclusive_sum(stretch.nbytes) - stretch.nbytes;
    LzRecord* records = of_stream.first + group.exit;
    if (group.tokens > kStaged ||
        simt::any((start + stretch.nbytes) >> (32 - kPositionBits) != 0)) {
      write(stream, stretch, group.nbytes + start, records + before);
      return;
    }
    const u32 base = (index - stream.first_group) * Cut::kGroup;
    u32* const staged = shared.staged[simt::warp_index()];
    walk(stream, stretch, start, [&](u32 i, u32 at, u32 x) {
      staged[before + i] = at << kPositionBits | (x - base);
    });
    simt::sync_warp();
    for (u32 i = lane; i < group.tokens; i += simt::kWarp)
      records[i] = {group.nbytes + (staged[i] >> kPositionBits),
                    base + (staged[i] & ((1u << kPositionBits) - 1))};
  }

  SIMT_DEVICE static void write(const LzStream& stream,
                                const LzStretch& stretch,
                                u32 start,
                                LzRecord* records) {
    walk(stream, stretch, start, [&](u32 i, u32 at, u32 x) { records[i] = {at, x}; });
  }

  template <class Put>
  SIMT_DEVICE static void walk(const LzStream& stream,
                               const LzStretch& stretch,
                               u32 start,
                               const Put& put) {
    u32 x = stretch.entry;
    for (u32 i = 0; i < stretch.tokens; ++i) {
      put(i, start, x);
      const LzStep step = step_at<Dialect>(stream.source, x, stream.source_nbytes);
      start += step.nbytes;
      x = step.next;
    }
  }
};

// A lane a stream: the fastest from some 16,000 streams on (8 a warp). Records are written as
// tokens are met, so each stream takes room for the most there can be: one wave has all of them.
template <class Dialect>
struct LzLead {
  static constexpr unsigned kThreads = 32;
  static constexpr u32 kLanes = 8;
  using Shared = simt::NoShared;
  LzBatch batch;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 w = simt::cta_index() * kLanes + simt::lane_index();
    if (simt::lane_index() >= kLanes || w >= batch.n_streams) return;
    const LzStream stream = batch.streams[w];
    const u32 end = stream.source_nbytes, size = stream.target_nbytes;
    LzParsed parsed = batch.take(most_records<Dialect>(end, size) - 1);
    LzRecord* records = batch.pool.records + parsed.first_record;
    u32 x = Dialect::start(stream), n = 0, start = 0;
    while (x < end) {
      const LzStep step = step_at<Dialect>(stream.source, x, end);
      if (step.next > kMaxStream) {
        x = step.next;
        break;
      }
      if (step.nbytes > size - start) {
        x = kWrongSize;
        break;
      }
      records[n++] = {start, x};
      start += step.nbytes;
      x = step.next;
    }
    parsed.n_records = n;
    const bool good = is_good(batch, stream, x, start);
    if (good) LzBatch::put_end({records, n}, stream);
    batch.parsed[w] = good ? parsed : LzParsed{};
  }
};

}  // namespace headrace::SIMT_SPACE
