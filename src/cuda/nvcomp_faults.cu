#include "cuda/nvcomp.h"
#include "kernels/common/fault.h"

namespace headrace {
namespace gpu {
namespace {

struct RaiseNvcompFaults {
  static constexpr unsigned kThreads = 128;
  using Shared = simt::NoShared;
  NvcompResult result;
  const u32* chunks;
  u32 count;
  u32* faults;

  // Codes of nvcompStatus_t.
  SIMT_DEVICE static Fault fault_of(i32 status) {
    switch (status) {
      case 11:  // NotSupported
      case 18:  // ChunkSizeTooLarge
        return Fault::unsupported;
      case 13:  // BadChecksum
        return Fault::checksum;
      case 15:  // OutputBufferTooSmall
        return Fault::wrong_size;
      default:
        return Fault::malformed;
    }
  }
  SIMT_DEVICE void operator()(Shared&) const {
    const u32 i = simt::cta_index() * kThreads + simt::thread_index();
    if (i >= count) return;
    if (result.statuses[i] != 0) {
      raise(faults, chunks[i], fault_of(result.statuses[i]));
    } else if (result.found_nbytes[i] != result.wanted_nbytes[i]) {
      raise(faults, chunks[i], Fault::wrong_size);
    }
  }
};

}  // namespace
}  // namespace gpu

void raise_nvcomp_faults(Queue& queue,
                         const NvcompResult& result,
                         const std::uint32_t* chunks,
                         std::size_t count,
                         std::uint32_t* faults) {
  using gpu::RaiseNvcompFaults;
  gpu::simt::launch(queue,
                    (count + RaiseNvcompFaults::kThreads - 1) / RaiseNvcompFaults::kThreads,
                    RaiseNvcompFaults{result, chunks, static_cast<u32>(count), faults});
}

}  // namespace headrace
