#include "kernels/place/copy.h"

#include "kernels/common/access.h"
#include "kernels/common/work.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr u32 kPiece = 16384;

struct Copy {
  const u8* source;
  u8* target;
  u64 nbytes;
  u64 first;
};

// A CTA copies a piece; its quads are aligned in the target.
struct CopyPieces {
  static constexpr unsigned kThreads = 256;
  using Shared = simt::NoShared;
  Work<Copy> work;

  SIMT_DEVICE void operator()(Shared&) const {
    const Copy copy = work.find(simt::cta_index());
    const u64 done = (simt::cta_index() - copy.first) * kPiece, left = copy.nbytes - done;
    copy_bytes<kThreads>(
        copy.target + done, copy.source + done, left < kPiece ? static_cast<u32>(left) : kPiece);
  }
};

}  // namespace

void copy_frames(Queue& queue, std::span<const Frame> frames) {
  WorkList<Copy> list;
  for (const Frame& frame : frames)
    list.add({frame.source, frame.target, frame.target_nbytes, 0},
             (frame.target_nbytes + kPiece - 1) / kPiece);
  if (list.items() == 0) return;
  const auto copies = list.upload(queue);
  simt::launch(queue, list.items(), CopyPieces{work_of(copies)});
}

}  // namespace headrace::SIMT_SPACE
