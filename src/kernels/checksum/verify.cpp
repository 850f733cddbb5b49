// A warp takes a slice of a span and adds its part to the span's sums; a last kernel makes
// checksums of these.

#include "kernels/checksum/verify.h"

#include <algorithm>
#include <vector>

#include "kernels/checksum/crc.h"
#include "kernels/common/access.h"
#include "kernels/common/fault.h"
#include "kernels/common/work.h"
#include "kernels/place/copy.h"
#include "kernels/tuning.h"

namespace headrace::SIMT_SPACE {
namespace {

using simt::Quad;

constexpr unsigned kCtaThreads = 256;
constexpr unsigned kWarps = kCtaThreads / simt::kWarp;
constexpr u32 kStripe = kCrcStripe;
constexpr unsigned kUnderWay = 4;  // stripes loaded before the first is used
constexpr u64 kMinSlice = 4096;
constexpr u64 kMaxSlice = 65536;  // sums of one lane fit 64 bits

struct Span {
  const u8* data;
  u64 nbytes;
  const u8* stored;  // the checksum to verify against; null: there is none
  u32 chunk;
  Fault fault;  // known beforehand
  u64 first;
};

// What slices add up to: a remainder, in `a`, or sums of units and of units times those behind.
struct Sums {
  u64 a, b;
};

struct Slices {
  Work<Span> spans;
  Sums* sums;
  u64 count;
  u64 nbytes;  // of a slice

  SIMT_DEVICE u64 warp_slice() const {
    return u64{simt::cta_index()} * kWarps + simt::warp_index();
  }
};

// Slices count from the end of the span, and stripes from the end of the slice: zeros in front of a
// message do not matter.
template <u32 kPolynomial>
struct CrcSlices {
  static constexpr unsigned kThreads = kCtaThreads;
  struct Shared {
    u32 table[4][256];
  };
  Slices slices;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const CrcTables& tables = crc_tables<kPolynomial>();
    for (unsigned i = simt::thread_index(); i < 4 * 256; i += kCtaThreads)
      shared.table[i / 256][i % 256] = tables.stripe[i / 256][i % 256];
    simt::sync_cta();
    const u64 slice = slices.warp_slice();
    if (slice >= slices.count) return;
    const Span& span = slices.spans.find(slice);
    const u64 after = (slice - span.first) * slices.nbytes, end = span.nbytes - after;
    const u64 begin = end > slices.nbytes ? end - slices.nbytes : 0;

    const u32 lanes = remainder_of_lane(shared, span.data + begin, span.data + end);
    u32 part = multiply(join_lanes(lanes), crc_power<kPolynomial>(after));
    if (begin == 0) part ^= multiply(~0u, crc_power<kPolynomial>(span.nbytes));
    if (simt::lane_index() == 0)
      simt::atomic_xor(reinterpret_cast<u32*>(&slices.sums[&span - slices.spans.entries].a), part);
  }

 private:
  SIMT_DEVICE static u32 multiply(u32 a, u32 b) { return crc_multiply<kPolynomial>(a, b); }
  SIMT_DEVICE static u32 skip_stripe(const Shared& shared, u32 word) {
    return shared.table[0][word & 255] ^ shared.table[1][word >> 8 & 255] ^
           shared.table[2][word >> 16 & 255] ^ shared.table[3][word >> 24];
  }

  // Of this lane's 16 bytes in each stripe, the words apart until the end.
  SIMT_DEVICE static u32 remainder_of_lane(const Shared& shared, const u8* begin, const u8* end) {
    constexpr u32 kStep = kUnderWay * kStripe;
    const u32 nbytes = static_cast<u32>(end - begin), steps = (nbytes + kStep - 1) / kStep;
    const u8* at = end - steps * kStep + 16 * simt::lane_index();
    u32 words[4] = {};
    for (u32 step = 0; step < steps; ++step, at += kStep) {
      Quad quads[kUnderWay];
      SIMT_UNROLL
      for (unsigned i = 0; i < kUnderWay; ++i)
        quads[i] = load_quad_within(at + i * kStripe, begin, end);
      SIMT_UNROLL
      for (unsigned i = 0; i < kUnderWay; ++i) {
        words[0] = skip_stripe(shared, words[0]) ^ quads[i].x;
        words[1] = skip_stripe(shared, words[1]) ^ quads[i].y;
        words[2] = skip_stripe(shared, words[2]) ^ quads[i].z;
        words[3] = skip_stripe(shared, words[3]) ^ quads[i].w;
      }
    }
    constexpr u32 kOneWord = kPolynomial;  // x^32
    u32 remainder = 0;
    SIMT_UNROLL
    for (u32 word : words) remainder = multiply(remainder ^ word, kOneWord);
    return remainder;
  }

  SIMT_DEVICE static u32 join_lanes(u32 remainder) {
    SIMT_UNROLL
    for (unsigned i = 0; i < 5; ++i) {
      const bool right = simt::lane_index() >> i & 1;
      const u32 other = simt::shuffle_xor(remainder, 1u << i);
      const u32 left_part = right ? other : remainder, right_part = right ? remainder : other;
      remainder = multiply(left_part, crc_tables<kPolynomial>().power[4 + i]) ^ right_part;
    }
    return remainder;
  }
};

// Sums of the units of 16 bytes, and of unit i times i.
struct UnitSums {
  u32 sum = 0, weighted = 0;
};

struct Adler {
  static constexpr u32 kUnit = 1;
  static constexpr u32 kModulus = 65521;
  SIMT_DEVICE static void add(UnitSums& sums, u32 word, unsigned i) {
    sums.sum = simt::dot_bytes(word, 0x01010101, sums.sum);
    sums.weighted = simt::dot_bytes(word, 0x03020100 + i * 0x04040404, sums.weighted);
  }
};

// Of big-endian units of 16 bits; the last byte of an odd number is the high one.
struct Fletcher {
  static constexpr u32 kUnit = 2;
  static constexpr u32 kModulus = 65535;
  SIMT_DEVICE static void add(UnitSums& sums, u32 word, unsigned i) {
    const u32 weights = 2 * i + ((2 * i + 1) << 16);
    sums.sum += 256 * simt::dot_bytes(word, 0x00010001) + simt::dot_bytes(word, 0x01000100);
    sums.weighted += 256 * simt::dot_bytes(word, weights) + simt::dot_bytes(word, weights << 8);
  }
};

SIMT_DEVICE u64 warp_sum(u64 value) {
  for (unsigned d = 1; d < simt::kWarp; d <<= 1) value += simt::shuffle_xor(value, d);
  return value;
}

template <class Kind>
struct SumSlices {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = simt::NoShared;
  Slices slices;

  SIMT_DEVICE void operator()(Shared&) const {
    const u64 slice = slices.warp_slice();
    if (slice >= slices.count) return;
    const Span& span = slices.spans.find(slice);
    const u64 begin = (slice - span.first) * slices.nbytes;
    const u8* const data = span.data + begin;
    const u32 nbytes =
        static_cast<u32>(span.nbytes - begin < slices.nbytes ? span.nbytes - begin : slices.nbytes);
    u64 sum = 0, weighted = 0;
    for (u32 at = 16 * simt::lane_index(); at < nbytes; at += kUnderWay * kStripe) {
      Quad quads[kUnderWay];
      SIMT_UNROLL
      for (unsigned i = 0; i < kUnderWay; ++i)
        quads[i] = load_quad_within(data + at + i * kStripe, data, data + nbytes);
      SIMT_UNROLL
      for (unsigned i = 0; i < kUnderWay; ++i) {
        UnitSums units;
        Kind::add(units, quads[i].x, 0);
        Kind::add(units, quads[i].y, 1);
        Kind::add(units, quads[i].z, 2);
        Kind::add(units, quads[i].w, 3);
        sum += units.sum;
        weighted += u64{(at + i * kStripe) / Kind::kUnit} * units.sum + units.weighted;
      }
    }
    sum = warp_sum(sum);
    weighted = warp_sum(weighted) % Kind::kModulus;
    if (simt::lane_index() != 0) return;
    const u64 units = (span.nbytes + Kind::kUnit - 1) / Kind::kUnit;
    const u64 behind = (units - begin / Kind::kUnit) % Kind::kModulus;
    Sums& sums = slices.sums[&span - slices.spans.entries];
    simt::atomic_add(&sums.a, sum);
    simt::atomic_add(
        &sums.b, (behind * (sum % Kind::kModulus) + Kind::kModulus - weighted) % Kind::kModulus);
  }
};

SIMT_DEVICE u32 finish(Checksum kind, Sums sums, u64 nbytes) {
  switch (kind) {
    case Checksum::crc32c:
    case Checksum::crc32:
      return nbytes ? ~static_cast<u32>(sums.a) : 0;
    case Checksum::adler32: {
      const u64 a = (sums.a + 1) % Adler::kModulus, b = (sums.b + nbytes) % Adler::kModulus;
      return static_cast<u32>(b << 16 | a);
    }
    case Checksum::fletcher32:
      break;
  }
  // Sums are folded: a multiple of 65535 stays 65535, and only zeros give zero.
  if (sums.a == 0) return 0;
  const u64 a = (sums.a - 1) % Fletcher::kModulus + 1;
  const u64 b = (sums.b + Fletcher::kModulus - 1) % Fletcher::kModulus + 1;
  return static_cast<u32>(b << 16 | a);
}

struct Finish {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = simt::NoShared;
  Work<Span> spans;
  const Sums* sums;
  Checksum kind;
  u32* results;  // or null
  u32* faults;   // or null

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 i = simt::cta_index() * kCtaThreads + simt::thread_index();
    if (i >= spans.count) return;
    const Span& span = spans.entries[i];
    if (span.fault != Fault::none) return raise(faults, span.chunk, span.fault);
    const u32 sum = finish(kind, sums[i], span.nbytes);
    if (results) results[i] = sum;
    if (!span.stored) return;
    u32 stored = 0;
    for (unsigned k = 0; k < 4; ++k) stored |= u32{span.stored[k]} << 8 * k;
    if (stored != sum) raise(faults, span.chunk, Fault::checksum);
  }
};

u64 slice_nbytes(const Queue& queue, const std::vector<Span>& spans) {
  u64 total = 0;
  for (const Span& span : spans) total += span.nbytes;
  const u64 wanted = total / tuning_of(queue).checksum.slices;
  constexpr u64 kStep = kUnderWay * kStripe;
  return std::clamp(wanted / kStep * kStep, kMinSlice, kMaxSlice);
}

void sum_slices(Queue& queue, Checksum kind, const Slices& slices) {
  const std::size_t ctas = (slices.count + kWarps - 1) / kWarps;
  switch (kind) {
    case Checksum::crc32c:
      return simt::launch(queue, ctas, CrcSlices<kCrc32c>{slices});
    case Checksum::crc32:
      return simt::launch(queue, ctas, CrcSlices<kCrc32>{slices});
    case Checksum::adler32:
      return simt::launch(queue, ctas, SumSlices<Adler>{slices});
    case Checksum::fletcher32:
      return simt::launch(queue, ctas, SumSlices<Fletcher>{slices});
  }
}

void run(Queue& queue, Checksum kind, const std::vector<Span>& spans, u32* results, u32* faults) {
  if (spans.empty()) return;
  const u64 nbytes = slice_nbytes(queue, spans);
  WorkList<Span> list;
  for (const Span& span : spans)
    list.add(span, span.fault == Fault::none ? (span.nbytes + nbytes - 1) / nbytes : 0);
  const auto entries = list.upload(queue);
  const Scratch<Sums> sums(queue, spans.size());
  queue.fill(sums.data(), 0, spans.size() * sizeof(Sums));
  sum_slices(queue, kind, {work_of(entries), sums.data(), list.items(), nbytes});
  simt::launch(queue,
               (spans.size() + kCtaThreads - 1) / kCtaThreads,
               Finish{work_of(entries), sums.data(), kind, results, faults});
}

}  // namespace

void checksums(Queue& queue, Checksum kind, std::span<const ByteSpan> spans, u32* results) {
  std::vector<Span> plain;
  for (const ByteSpan& span : spans)
    plain.push_back({span.data, span.nbytes, nullptr, 0, Fault::none, 0});
  run(queue, kind, plain, results, nullptr);
}

void verify(Queue& queue, Checksum kind, bool at_start, const DecodeBatch& batch) {
  constexpr u64 kStored = 4;
  std::vector<Span> spans;
  std::vector<Frame> copies;
  for (const Frame& frame : batch.frames) {
    Span span{nullptr, 0, nullptr, frame.chunk, Fault::none, 0};
    const u64 nbytes = frame.source_nbytes - kStored;
    if (frame.source_nbytes < kStored) {
      span.fault = Fault::truncated;
    } else if (frame.target && frame.target_nbytes != nbytes) {
      span.fault = Fault::wrong_size;
    } else {
      span.data = frame.source + (at_start ? kStored : 0);
      span.nbytes = nbytes;
      span.stored = frame.source + (at_start ? 0 : nbytes);
      if (frame.target) copies.push_back({span.data, nbytes, frame.target, nbytes, frame.chunk});
    }
    spans.push_back(span);
  }
  run(queue, kind, spans, nullptr, batch.faults);
  copy_frames(queue, copies);
}

}  // namespace headrace::SIMT_SPACE
