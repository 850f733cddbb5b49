#include "kernels/zstd/decode.h"

#include "kernels/zstd/stages.h"

// 1. Headers are walked (parse.h), on the host where it has the bytes: that gives the sizes of
//    everything below, so that nothing later waits for the device.
// 2. Sequences of all blocks become records, literals go to a pool (entropy.cpp).
// 3. A scan over each source's blocks finds their places and repeat offsets (scan.cpp). From
//    here on sources without a fault are known to be sound.
// 4. Records are executed (execute.cpp).
// 5. Checksums are verified (verify.cpp).
//
// What RFC 8878 forbids is a fault, also where libzstd 1.5 lets it pass: blocks of more than 128
// KiB, streams that are not used up exactly, reserved bits of the modes, an offset of 0, Huffman
// codes of 12 bits. Offsets may exceed the window, as with libzstd, but not 264 MB.

namespace headrace::SIMT_SPACE {
namespace zstd {

Stages::Stages(Queue& queue, const Plan& plan)
    : records(queue, plan.total.records),
      literals(queue, plan.total.literals + 16),
      results(queue, plan.total.blocks),
      placed(queue, plan.total.blocks) {}

namespace {

void decode(Queue& queue, const Plan& plan, u32* faults) {
  const Stages stages(queue, plan);
  decode_entropy(queue, plan, stages, faults);
  place_blocks(queue, plan, stages, faults);
  execute(queue, plan, stages, faults);
  verify_checksums(queue, plan, stages, faults);
}

}  // namespace
}  // namespace zstd

void decode_zstd(Queue& queue, const DecodeBatch& batch) {
  const auto decode_slabs = [&](auto next_slab) {
    for (std::size_t first = 0; first < batch.frames.size();) {
      const zstd::Plan plan = next_slab(first);
      zstd::decode(queue, plan, batch.faults);
      first += plan.sources.size();
    }
  };
  if (!batch.host_sources.empty()) {
    const zstd::HostParse parse(batch.frames, batch.host_sources);
    return decode_slabs(
        [&](std::size_t first) { return parse.upload(queue, batch.frames, first); });
  }
  if (!batch.headers.empty()) {
    const zstd::HostParse parse(batch.headers);
    return decode_slabs(
        [&](std::size_t first) { return parse.upload(queue, batch.frames, first); });
  }
  const auto counted = zstd::count_on_device(queue, batch.frames);
  decode_slabs([&](std::size_t first) {
    return zstd::parse_on_device(
        queue, batch.frames.subspan(first), std::span(counted).subspan(first));
  });
}

}  // namespace headrace::SIMT_SPACE
