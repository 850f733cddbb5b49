#pragma once

// Streams that hardly shrink: few tokens, each with literals of thousands of bytes. Guesses never
// come true there, for blind starts within literals find tokens that are none; and bytes that need
// only be copied are not worth entries. So for streams whose source is nearly as long as their
// target:
//
// scout     one lane a stream walks from token to token, and gives up as soon as it finds them too
//           dense. Streams that it gets through are scouted; all others are parsed as ever, and the
//           kernels below leave them alone.
// literals  a warp for 4 KiB of a scouted stream's target copies the literals there.
// matches   a warp a scouted stream makes its matches, 32 tokens at a time.

#include "kernels/common/access.h"
#include "kernels/common/fault.h"
#include "kernels/lz/execute.h"
#include "kernels/lz/stream.h"

namespace headrace::SIMT_SPACE {

// What a scout may find before it gives up: the first tokens may be as dense as they like, behind
// them there is one for so many bytes. A token takes a lane some 0.65 us, so a dense stream costs
// 40 us, and one that passes is walked at 1.5 GB/s at least.
inline constexpr u32 kScoutTokens = 64, kScoutBytes = 1024;

// Of sources and targets of so many bytes. A longer stream would keep its lane for more than 10 ms
// while the device has nothing else to do.
SIMT_HOST_DEVICE bool may_be_sparse(u64 source_nbytes, u64 target_nbytes) {
  constexpr u64 kLongest = 16 << 20;
  return target_nbytes <= kLongest && source_nbytes <= kLongest &&
         100 * source_nbytes >= 97 * target_nbytes;
}

// Room for what a scout finds.
template <class Dialect>
SIMT_HOST_DEVICE u64 scouted_records(u64 source_nbytes, u64 target_nbytes) {
  const u64 most = most_records<Dialect>(source_nbytes, target_nbytes);
  const u64 found = kScoutTokens + source_nbytes / kScoutBytes + 2;
  return found < most ? found : most;
}

// A warp a stream, of which one lane works: other lanes would make it wait for their loads.
template <class Dialect>
struct LzScout {
  static constexpr unsigned kThreads = 32;
  using Shared = simt::NoShared;
  LzBatch batch;

  SIMT_DEVICE void operator()(Shared&) const {
    if (simt::lane_index() != 0) return;
    const u32 w = simt::cta_index();
    const LzStream stream = batch.streams[w];
    batch.parsed[w] = {};
    if (!may_be_sparse(stream.source_nbytes, stream.target_nbytes)) return;
    LzParsed parsed =
        batch.take(scouted_records<Dialect>(stream.source_nbytes, stream.target_nbytes) - 1);
    if (parsed.wave != 0) return;  // theirs is the first
    LzRecord* const records = batch.pool.records + parsed.first_record;
    parsed.n_records = walk(stream, records);
    parsed.scouted = true;
    if (parsed.n_records == 0) return;
    LzBatch::put_end({records, parsed.n_records}, stream);
    batch.parsed[w] = parsed;
  }

  // Gives the number of tokens; 0 where they are too dense or something is wrong, which is then for
  // the other parse to find.
  SIMT_DEVICE static u32 walk(const LzStream& stream, LzRecord* records) {
    const u32 end = stream.source_nbytes, size = stream.target_nbytes;
    u32 x = Dialect::start(stream), n = 0, start = 0;
    while (x < end) {
      if (n >= kScoutTokens + x / kScoutBytes) return 0;
      const LzStep step = step_at<Dialect>(stream.source, x, end);
      if (step.next > kMaxStream || step.nbytes > size - start) return 0;
      records[n++] = {start, x};
      start += step.nbytes;
      x = step.next;
    }
    return x == end && start == size ? n : 0;
  }
};

// A CTA for a tile, as jump numbers them, of any stream.
template <class Dialect>
struct LzCopyLiterals {
  static constexpr unsigned kThreads = 128;
  static constexpr u32 kOfWarp = LzJumpTiles::kNbytes / (kThreads / simt::kWarp);
  using Shared = simt::NoShared;
  LzBatch batch;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 index = simt::cta_index();
    const u32 w = find_stream<&LzStream::first_tile>(batch, index);
    const LzParsed parsed = batch.parsed[w];
    if (!parsed.scouted) return;
    const LzStream stream = batch.streams[w];
    const u32 begin =
        (index - stream.first_tile) * LzJumpTiles::kNbytes + simt::warp_index() * kOfWarp;
    if (begin >= stream.target_nbytes) return;
    const u32 left = stream.target_nbytes - begin, end = begin + (left < kOfWarp ? left : kOfWarp);
    const LzRecord* records = batch.pool.records + parsed.first_record;
    const u32 first =
        simt::last_at_or_before(parsed.n_records, begin, [&](u32 i) { return records[i].start; });
    for (u32 i = first; i < parsed.n_records; ++i) {
      const LzRecord record = records[i];
      if (record.start >= end) return;
      copy(stream, record, begin, end);
    }
  }

  // Those literals of a token that belong to [begin, end) of the target.
  SIMT_DEVICE static void copy(const LzStream& stream, const LzRecord& record, u32 begin, u32 end) {
    const LzParts parts = Dialect::parts(stream.source, record.token, stream.source_nbytes);
    const u32 match = record.start + parts.literal_nbytes;
    const u32 from = record.start > begin ? record.start : begin, to = match < end ? match : end;
    if (from < to)
      copy_bytes_by_warp(
          stream.target + from, stream.source + parts.literals + (from - record.start), to - from);
  }
};

// One warp a stream; all literals are in the target.
template <class Dialect>
struct LzCopyMatches {
  static constexpr unsigned kThreads = 32;
  static constexpr u32 kOfLane = 64;  // what is longer is copied by the whole warp
  using Shared = simt::NoShared;
  LzBatch batch;

  // Positions in the target. It repeats the `distance` bytes before it.
  struct Match {
    u32 begin, end, distance;

    SIMT_DEVICE u32 nbytes() const { return end - begin; }
    SIMT_DEVICE u32 source() const { return begin - distance; }
    SIMT_DEVICE u32 source_end() const { return distance < nbytes() ? begin : source() + nbytes(); }
    SIMT_DEVICE Match of_lane(u32 lane) const {
      return {simt::shuffle(begin, lane), simt::shuffle(end, lane), simt::shuffle(distance, lane)};
    }
  };

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 w = simt::cta_index();
    const LzParsed parsed = batch.parsed[w];
    if (!parsed.scouted) return;
    const LzStream stream = batch.streams[w];
    const LzRecord* records = batch.pool.records + parsed.first_record;
    for (u32 done = 0; done < parsed.n_records; done += simt::kWarp) {
      const u32 i = done + simt::lane_index();
      Match match{};
      if (i < parsed.n_records) match = match_of(stream, records[i], records[i + 1].start);
      const bool allowed = match.nbytes() == 0 ||
                           (match.distance != 0 && match.distance <= match.begin &&
                            Dialect::allows(match.begin, match.nbytes(), stream.target_nbytes));
      if (!simt::all(allowed)) {
        if (simt::lane_index() == 0) raise(batch.faults, stream.chunk, Fault::malformed);
        return;
      }
      copy_all(stream.target, match);
    }
  }

  SIMT_DEVICE static Match match_of(const LzStream& stream, const LzRecord& record, u32 end) {
    const LzParts parts = Dialect::parts(stream.source, record.token, stream.source_nbytes);
    return {record.start + parts.literal_nbytes, end, parts.distance};
  }

  // A match a lane, in rounds: of those that are left, the ones that copy nothing that another one
  // before them has still to make. The first one of them always is.
  SIMT_DEVICE static void copy_all(u8* target, const Match& match) {
    const u32 self = simt::lane_index();
    u32 left = simt::ballot(match.nbytes() != 0);
    while (left) {
      bool ready = left >> self & 1;
      for (u32 rest = left; rest; rest &= rest - 1) {
        const u32 lane = simt::trailing_zeros(rest);
        const u32 begin = simt::shuffle(match.begin, lane), end = simt::shuffle(match.end, lane);
        if (lane < self && begin < match.source_end() && match.source() < end) ready = false;
      }
      const bool is_long = match.nbytes() > kOfLane;
      if (ready && !is_long) copy_by_lane(target, match);
      const u32 now = simt::ballot(ready);
      for (u32 rest = simt::ballot(ready && is_long); rest; rest &= rest - 1)
        copy_by_warp(target, match.of_lane(simt::trailing_zeros(rest)));
      simt::sync_warp();
      left &= ~now;
    }
  }

  // Loads in flight together, where none is of a byte that is stored with it.
  SIMT_DEVICE static void copy_by_lane(u8* target, const Match& match) {
    constexpr u32 kAtOnce = 8;
    u32 p = match.begin;
    for (; match.distance >= kAtOnce && p + kAtOnce <= match.end; p += kAtOnce) {
      u8 bytes[kAtOnce];
      SIMT_UNROLL
      for (u32 k = 0; k < kAtOnce; ++k) bytes[k] = target[p + k - match.distance];
      SIMT_UNROLL
      for (u32 k = 0; k < kAtOnce; ++k) target[p + k] = bytes[k];
    }
    for (; p < match.end; ++p) target[p] = target[p - match.distance];
  }

  // Only from bytes before the match.
  SIMT_DEVICE static void copy_by_warp(u8* target, const Match& match) {
    for (u32 i = simt::lane_index(); i < match.nbytes(); i += simt::kWarp)
      target[match.begin + i] = target[match.source() + i % match.distance];
  }
};

}  // namespace headrace::SIMT_SPACE
