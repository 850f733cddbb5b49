// Integers wrap, so their sums can be taken in any order: a warp sums a segment, a warp a chunk
// sums the segments, and a warp a segment sums again from there. Sums of floats depend on the
// order: a warp a chunk, one element after the other.

#include "headrace/error.h"
#include "kernels/filters/numcodecs.h"
#include "kernels/filters/typed_work.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr unsigned kCtaThreads = 256;
constexpr unsigned kWarps = kCtaThreads / simt::kWarp;
constexpr u64 kSegment = 4096;  // elements

struct Delta {
  Work<TypedChunk> chunks;
  u32* faults;
  NumberFormat from, to;

  SIMT_DEVICE u64 load(const TypedChunk& chunk, u64 i) const {
    return convert(load_number(chunk.source + i * nbytes_of(from.type), from), from.type, to.type);
  }
  SIMT_DEVICE void store(const TypedChunk& chunk, u64 i, u64 number) const {
    store_number(chunk.target + i * nbytes_of(to.type), to, number);
  }
};

SIMT_DEVICE u64 warp_number() { return u64{simt::cta_index()} * kWarps + simt::warp_index(); }

struct SumSegments {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = simt::NoShared;
  Delta delta;
  u64 count;
  u64* sums;

  SIMT_DEVICE void operator()(Shared&) const {
    const u64 segment = warp_number();
    if (segment >= count) return;
    const TypedChunk chunk = delta.chunks.find(segment);
    const u64 begin = (segment - chunk.first) * kSegment;
    const u64 end = begin + kSegment < chunk.n ? begin + kSegment : chunk.n;
    u64 sum = 0;
    for (u64 i = begin + simt::lane_index(); i < end; i += simt::kWarp) sum += delta.load(chunk, i);
    for (unsigned d = 1; d < simt::kWarp; d <<= 1) sum += simt::shuffle_xor(sum, d);
    if (simt::lane_index() == 0) sums[segment] = sum;
  }
};

// Each segment's sum becomes that of the segments of its chunk before it.
struct SumChunks {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = simt::NoShared;
  Delta delta;
  u64 count;  // segments
  u64* sums;

  SIMT_DEVICE void operator()(Shared&) const {
    const u64 index = warp_number();
    if (index >= delta.chunks.count) return;
    const TypedChunk& chunk = delta.chunks.entries[index];
    if (chunk.fault != Fault::none && simt::lane_index() == 0)
      raise(delta.faults, chunk.chunk, chunk.fault);
    const u64 end = index + 1 < delta.chunks.count ? (&chunk)[1].first : count;
    u64 carry = 0;
    for (u64 begin = chunk.first; begin < end; begin += simt::kWarp) {
      const u64 i = begin + simt::lane_index();
      const u64 sum = i < end ? sums[i] : 0, inclusive = carry + simt::inclusive_sum(sum);
      if (i < end) sums[i] = inclusive - sum;
      carry = simt::shuffle(inclusive, simt::kWarp - 1);
    }
  }
};

struct SumElements {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = simt::NoShared;
  Delta delta;
  u64 count;
  const u64* sums;

  SIMT_DEVICE void operator()(Shared&) const {
    const u64 segment = warp_number();
    if (segment >= count) return;
    const TypedChunk chunk = delta.chunks.find(segment);
    const u64 begin = (segment - chunk.first) * kSegment;
    const u64 end = begin + kSegment < chunk.n ? begin + kSegment : chunk.n;
    u64 carry = sums[segment];
    for (u64 step = begin; step < end; step += simt::kWarp) {
      const u64 i = step + simt::lane_index();
      const u64 sum = carry + simt::inclusive_sum(i < end ? delta.load(chunk, i) : 0);
      if (i < end) delta.store(chunk, i, sum);
      carry = simt::shuffle(sum, simt::kWarp - 1);
    }
  }
};

struct SumFloats {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = simt::NoShared;
  Delta delta;

  SIMT_DEVICE void operator()(Shared&) const {
    const u64 index = warp_number();
    if (index >= delta.chunks.count) return;
    const TypedChunk chunk = delta.chunks.entries[index];
    const unsigned lane = simt::lane_index();
    if (chunk.fault != Fault::none && lane == 0) raise(delta.faults, chunk.chunk, chunk.fault);
    u64 sum = 0;
    for (u64 begin = 0; begin < chunk.n; begin += simt::kWarp) {
      const u64 left = chunk.n - begin;
      const u64 mine = lane < left ? delta.load(chunk, begin + lane) : 0;
      u64 result = 0;
      for (unsigned i = 0; i < simt::kWarp && i < left; ++i) {
        const u64 number = simt::shuffle(mine, i);
        // The first is no sum: -0 and signalling NaNs stay as they are.
        sum = begin + i == 0 ? number : compute_floating(delta.to.type, sum, number, Sum{});
        if (lane == i) result = sum;
      }
      if (lane < left) delta.store(chunk, begin + lane, result);
    }
  }
};

u64 ctas_of(u64 warps) { return (warps + kWarps - 1) / kWarps; }

}  // namespace

void delta(Queue& queue, const DecodeBatch& batch, const NumberConversion& filter) {
  if (filter.decoded.type == Number::boolean)
    throw Error(ErrorCode::unsupported, "delta: differences of booleans");
  const auto list = typed_work(batch, filter, kSegment);
  if (list.items() == 0) return;
  const auto chunks = list.upload(queue);
  const Delta work{work_of(chunks), batch.faults, filter.encoded, filter.decoded};
  if (is_floating(filter.decoded.type))
    return simt::launch(queue, ctas_of(chunks.size()), SumFloats{work});
  const u64 segments = list.items();
  const Scratch<u64> sums(queue, segments);
  simt::launch(queue, ctas_of(segments), SumSegments{work, segments, sums.data()});
  simt::launch(queue, ctas_of(chunks.size()), SumChunks{work, segments, sums.data()});
  simt::launch(queue, ctas_of(segments), SumElements{work, segments, sums.data()});
}

}  // namespace headrace::SIMT_SPACE
