#include "kernels/filters/numcodecs.h"

#include <string>

#include "headrace/error.h"
#include "kernels/common/access.h"
#include "kernels/filters/typed_work.h"
#include "kernels/place/placements.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr unsigned kCtaThreads = 256;
constexpr unsigned kUnits = 4;  // a thread takes

// Conversion to the work type, quotient, sum, conversion; without a work type just one conversion.
struct Convert {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = simt::NoShared;
  Work<TypedChunk> chunks;
  u32* faults;
  NumberFormat from, to;
  bool scales;
  Number work;
  u64 scale, offset;  // of the work type

  SIMT_DEVICE void operator()(Shared&) const {
    const TypedChunk chunk = chunks.find(simt::cta_index());
    if (chunk.fault != Fault::none) {
      if (simt::thread_index() == 0) raise(faults, chunk.chunk, chunk.fault);
      return;
    }
    const u64 begin =
        (simt::cta_index() - chunk.first) * kCtaThreads * kUnits + simt::thread_index();
    const u32 from_nbytes = nbytes_of(from.type), to_nbytes = nbytes_of(to.type);
    u64 numbers[kUnits];
    SIMT_UNROLL
    for (unsigned i = 0; i < kUnits; ++i)
      if (begin + i * kCtaThreads < chunk.n)
        numbers[i] = load_number(chunk.source + (begin + i * kCtaThreads) * from_nbytes, from);
    SIMT_UNROLL
    for (unsigned i = 0; i < kUnits; ++i)
      if (begin + i * kCtaThreads < chunk.n)
        store_number(chunk.target + (begin + i * kCtaThreads) * to_nbytes, to, result(numbers[i]));
  }

 private:
  SIMT_DEVICE u64 result(u64 number) const {
    if (!scales) return convert(number, from.type, to.type);
    number = convert(number, from.type, work);
    number = compute_floating(work, number, scale, Quotient{});
    number = compute_floating(work, number, offset, Sum{});
    return convert(number, work, to.type);
  }
};

struct PackedBits {
  const u8* source;
  u64 source_nbytes;
  u8* target;
  u64 target_nbytes;
  u32 chunk;
  u64 first;
};

struct UnpackBits {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = simt::NoShared;
  Work<PackedBits> chunks;
  u32* faults;

  SIMT_DEVICE void operator()(Shared&) const {
    const PackedBits chunk = chunks.find(simt::cta_index());
    if (const Fault fault = check(chunk); fault != Fault::none) {
      if (simt::thread_index() == 0) raise(faults, chunk.chunk, fault);
      return;
    }
    const u64 begin =
        (simt::cta_index() - chunk.first) * kCtaThreads * kUnits + simt::thread_index();
    const u32 skip = misalignment(chunk.target, 4);
    for (unsigned i = 0; i < kUnits; ++i) {
      // Target bytes of one aligned word; wraps at the head.
      const u64 at = 4 * (begin + i * kCtaThreads) - skip;
      u32 word = 0;
      for (unsigned k = 0; k < 4; ++k)
        if (at + k < chunk.target_nbytes)
          word |= (chunk.source[1 + (at + k) / 8] >> (7 - (at + k) % 8) & 1u) << 8 * k;
      if (at < chunk.target_nbytes && at + 4 <= chunk.target_nbytes)
        *reinterpret_cast<u32*>(chunk.target + at) = word;
      else
        for (unsigned k = 0; k < 4; ++k)
          if (at + k < chunk.target_nbytes) chunk.target[at + k] = static_cast<u8>(word >> 8 * k);
    }
  }

 private:
  SIMT_DEVICE static Fault check(const PackedBits& chunk) {
    if (chunk.source_nbytes == 0) return Fault::truncated;
    const u64 padding = chunk.source[0], bits = 8 * (chunk.source_nbytes - 1);
    if (padding > 7 || padding > bits) return Fault::malformed;
    return bits - padding == chunk.target_nbytes ? Fault::none : Fault::wrong_size;
  }
};

void convert_all(Queue& queue,
                 const DecodeBatch& batch,
                 const NumberConversion& filter,
                 bool scales) {
  const auto list = typed_work(batch, filter, kCtaThreads * kUnits);
  if (list.items() == 0) return;
  const Number work = is_floating(filter.encoded.type) ? filter.encoded.type : Number::float64;
  const auto in_work_type = [&](double v) {
    return convert(std::bit_cast<u64>(v), Number::float64, work);
  };
  const auto chunks = list.upload(queue);
  simt::launch(queue,
               list.items(),
               Convert{work_of(chunks),
                       batch.faults,
                       filter.encoded,
                       filter.decoded,
                       scales,
                       work,
                       in_work_type(filter.scale),
                       in_work_type(filter.offset)});
}

}  // namespace

void cast(Queue& queue, const DecodeBatch& batch, const NumberConversion& filter) {
  convert_all(queue, batch, filter, false);
}

void fixed_scale_offset(Queue& queue, const DecodeBatch& batch, const NumberConversion& filter) {
  convert_all(queue, batch, filter, true);
}

void packbits(Queue& queue, const DecodeBatch& batch) {
  WorkList<PackedBits> list;
  for (const Frame& frame : batch.frames) {
    const u64 words = frame.target_nbytes / 4 + 2;
    list.add({frame.source, frame.source_nbytes, frame.target, frame.target_nbytes, frame.chunk, 0},
             (words + kCtaThreads * kUnits - 1) / (kCtaThreads * kUnits));
  }
  if (list.items() == 0) return;
  const auto chunks = list.upload(queue);
  simt::launch(queue, list.items(), UnpackBits{work_of(chunks), batch.faults});
}

void swap_bytes(Queue& queue, const FilterBatch& batch) {
  const u64 itemsize = batch.itemsize;
  std::vector<Placement> placements;
  for (const Frame& frame : batch.frames) {
    if (itemsize == 0 || frame.source_nbytes % itemsize != 0 ||
        frame.source_nbytes != frame.target_nbytes)
      throw Error(ErrorCode::invalid_argument,
                  "swap_bytes: elements of " + std::to_string(itemsize) + " bytes, " +
                      std::to_string(frame.source_nbytes) + " to " +
                      std::to_string(frame.target_nbytes));
    Placement placement{frame.source, frame.target};
    placement.count[0] = static_cast<i64>(frame.source_nbytes / itemsize);
    placement.from[0].stride = placement.to[0].stride = static_cast<i64>(itemsize);
    placements.push_back(placement);
  }
  place(queue, {placements, 1, batch.itemsize, batch.itemsize});
}

}  // namespace headrace::SIMT_SPACE
