#include "kernels/checksum/xxh64.h"
#include "kernels/zstd/stages.h"

namespace headrace::SIMT_SPACE::zstd {
namespace {

struct VerifyChecksums {
  static constexpr unsigned kThreads = 32;
  using Shared = simt::NoShared;
  const Source* sources;
  const Frame* frames;
  const Block* blocks;
  const PlacedBlock* placed;
  const Record* records;
  u32* faults;

  SIMT_DEVICE void operator()(Shared&) const {
    const Frame frame = frames[simt::cta_index()];
    const Source& source = sources[frame.source];
    if (!frame.has_checksum) return;
    if (simt::shuffle(simt::load_shared_cache(faults + source.chunk), 0) != 0) return;
    const u32 last = frame.end_block - 1;
    const u32 begin = placed[frame.first_block].start;
    const u32 end = placed[last].start +
                    record_match(records[blocks[last].records + blocks[last].record_count - 1]);
    const u64 hash = Xxh64::hash(source.target + begin, end - begin);
    if (simt::lane_index() == 0 && static_cast<u32>(hash) != frame.checksum)
      raise(faults, source.chunk, Fault::checksum);
  }
};

}  // namespace

void verify_checksums(Queue& queue, const Plan& plan, const Stages& stages, u32* faults) {
  if (plan.total.checksums == 0) return;
  simt::launch(queue,
               plan.total.frames,
               VerifyChecksums{plan.device_sources,
                               plan.frames,
                               plan.blocks,
                               stages.placed.data(),
                               stages.records.data(),
                               faults});
}

}  // namespace headrace::SIMT_SPACE::zstd
