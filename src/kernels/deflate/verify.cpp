#include "kernels/checksum/verify.h"

#include "kernels/common/fault.h"
#include "kernels/deflate/stream.h"

namespace headrace::SIMT_SPACE::deflate {
namespace {

struct CompareChecksums {
  static constexpr unsigned kThreads = 128;
  using Shared = simt::NoShared;

  DeflateWork work;
  const u32* found;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 i = simt::cta_index() * kThreads + simt::thread_index();
    if (i >= work.count) return;
    const DeflateResult& result = work.results[i];
    if (result.fault == 0 && result.checksum != found[i])
      raise(work.faults, work.streams[i].chunk, Fault::checksum);
  }
};

}  // namespace

void verify_checksums(Queue& queue, const DeflateWork& work, std::span<const ByteSpan> targets) {
  const Scratch<u32> found(queue, targets.size());
  const bool gzip = work.container == Container::gzip;
  checksums(queue, gzip ? Checksum::crc32 : Checksum::adler32, targets, found.data());
  simt::launch(queue,
               (targets.size() + CompareChecksums::kThreads - 1) / CompareChecksums::kThreads,
               CompareChecksums{work, found.data()});
}

}  // namespace headrace::SIMT_SPACE::deflate
