#include "kernels/common/fault_list.h"

namespace headrace::SIMT_SPACE {
namespace {

struct RaiseFaults {
  static constexpr unsigned kThreads = 128;
  using Shared = simt::NoShared;
  const FrameFault* list;
  u32 count;
  u32* faults;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 i = simt::cta_index() * kThreads + simt::thread_index();
    if (i < count) raise(faults, list[i].chunk, list[i].fault);
  }
};

}  // namespace

void raise_faults(Queue& queue, const std::vector<FrameFault>& list, u32* faults) {
  if (list.empty()) return;
  const auto device = Scratch<FrameFault>::of(queue, list.data(), list.size());
  simt::launch(queue,
               (list.size() + RaiseFaults::kThreads - 1) / RaiseFaults::kThreads,
               RaiseFaults{device.data(), static_cast<u32>(list.size()), faults});
}

}  // namespace headrace::SIMT_SPACE
