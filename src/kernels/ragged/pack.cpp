#include "kernels/ragged/pack.h"

#include "kernels/common/access.h"
#include "kernels/ragged/sum.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr unsigned kCtaThreads = 256;
constexpr u64 kElements = 4096;              // a CTA sums
constexpr u64 kTile = 16384;                 // bytes of the values, that a CTA makes
constexpr u64 kPiece = kTile / kCtaThreads;  // a thread
constexpr unsigned kPassed = 8;              // empty elements that are passed one by one

struct SumSizes {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = SumShared<kThreads>;
  RaggedBatch batch;
  u64* sums;

  SIMT_DEVICE void operator()(Shared& shared) const {
    u64 sum = 0;
    for (u64 k = simt::thread_index(); k < kElements; k += kThreads) {
      const u64 i = simt::cta_index() * kElements + k;
      if (i < batch.count) sum += batch.elements[i].nbytes;
    }
    u64 all = 0;
    sum_in_cta(shared, sum, all);
    if (simt::thread_index() == 0) sums[simt::cta_index()] = all;
  }
};

// Each sum becomes that of those before it. One CTA.
struct SumSums {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = SumShared<kThreads>;
  u64* sums;
  u64 count;

  SIMT_DEVICE void operator()(Shared& shared) const {
    u64 before = 0;
    for (u64 first = 0; first < count; first += kThreads) {
      const u64 i = first + simt::thread_index();
      const u64 own = i < count ? sums[i] : 0;
      u64 all = 0;
      const u64 sum = sum_in_cta(shared, own, all);
      if (i < count) sums[i] = before + sum - own;
      before += all;
    }
  }
};

struct WriteOffsets {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = SumShared<kThreads>;
  RaggedBatch batch;
  const u64* sums;

  SIMT_DEVICE void operator()(Shared& shared) const {
    u64 before = sums[simt::cta_index()];
    for (u64 k = 0; k < kElements; k += kThreads) {
      const u64 i = simt::cta_index() * kElements + k + simt::thread_index();
      const u64 own = i < batch.count ? batch.elements[i].nbytes : 0;
      u64 all = 0;
      const u64 sum = sum_in_cta(shared, own, all);
      if (i < batch.count) batch.offsets[i + 1] = static_cast<i64>((before + sum) / batch.unit);
      before += all;
    }
    if (simt::cta_index() == 0 && simt::thread_index() == 0) batch.offsets[0] = 0;
  }
};

// By the bytes of the result: one element may be longer than all others.
struct CopyValues {
  static constexpr unsigned kThreads = kCtaThreads;
  struct Shared {
    u64 first, last;  // elements that the tile touches
  };
  RaggedBatch batch;
  u8* values;
  u64 nbytes;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const u64 begin = simt::cta_index() * kTile,
              end = begin + kTile < nbytes ? begin + kTile : nbytes;
    if (simt::thread_index() == 0) shared.first = element_at(begin, 0, batch.count);
    if (simt::thread_index() == simt::kWarp) shared.last = element_at(end - 1, 0, batch.count);
    simt::sync_cta();
    u64 at = begin + simt::thread_index() * kPiece;
    if (at >= end) return;
    u64 i = element_at(at, shared.first, shared.last + 1);
    const u8* source = batch.elements[i].data + (at - begin_of(i));
    u64 left = begin_of(i + 1) - at;
    for (u64 quad = 0; quad < kPiece && at < end; quad += 16) {
      u32 words[4] = {};
      SIMT_UNROLL
      for (unsigned k = 0; k < 16; ++k) {
        if (at + k >= end) break;
        for (unsigned passed = 0; left == 0; ++passed) {
          // One by one, then, past many empty ones, by a search.
          i = passed < kPassed ? i + 1 : element_behind(at + k, i + 1, shared.last + 1);
          source = batch.elements[i].data;
          left = begin_of(i + 1) - begin_of(i);
        }
        words[k / 4] |= u32{*source++} << 8 * (k % 4);
        --left;
      }
      if (at + 16 <= end) {
        *reinterpret_cast<simt::Quad*>(values + at) = {words[0], words[1], words[2], words[3]};
      } else {
        for (unsigned k = 0; at + k < end; ++k)
          values[at + k] = static_cast<u8>(words[k / 4] >> 8 * (k % 4));
      }
      at += 16;
    }
  }

 private:
  SIMT_DEVICE u64 begin_of(u64 i) const {
    return static_cast<u64>(simt::load_constant(batch.offsets + i)) * batch.unit;
  }

  // That has this byte of the result: one of [first, last).
  SIMT_DEVICE u64 element_at(u64 byte, u64 first, u64 last) const {
    while (last - first > 1) {
      const u64 middle = first + (last - first) / 2;
      (begin_of(middle) <= byte ? first : last) = middle;
    }
    return first;
  }
  // The same for a place that is seldom come to.
  SIMT_DEVICE_NOINLINE u64 element_behind(u64 byte, u64 first, u64 last) const {
    return element_at(byte, first, last);
  }
};

u64 parts(u64 n, u64 of) { return n / of + (n % of != 0 ? 1 : 0); }

}  // namespace

void ragged_offsets(Queue& queue, const RaggedBatch& batch) {
  const u64 n = parts(batch.count, kElements);
  if (n == 0) return queue.fill(batch.offsets, 0, sizeof(i64));
  const Scratch<u64> sums(queue, n);
  simt::launch(queue, n, SumSizes{batch, sums.data()});
  simt::launch(queue, 1, SumSums{sums.data(), n});
  simt::launch(queue, n, WriteOffsets{batch, sums.data()});
}

void ragged_values(Queue& queue, const RaggedBatch& batch, u8* values, u64 nbytes) {
  simt::launch(queue, parts(nbytes, kTile), CopyValues{batch, values, nbytes});
}

}  // namespace headrace::SIMT_SPACE
