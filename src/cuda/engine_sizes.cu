#include "cuda/engine.h"
#include "kernels/common/fault.h"

namespace headrace {
namespace gpu {
namespace {

struct RaiseEngineSizes {
  static constexpr unsigned kThreads = 128;
  using Shared = simt::NoShared;
  const u32* found;
  const u32* wanted;
  const u32* chunks;
  u32 count;
  u32* faults;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 i = simt::cta_index() * kThreads + simt::thread_index();
    if (i < count && found[i] != wanted[i]) raise(faults, chunks[i], Fault::wrong_size);
  }
};

}  // namespace
}  // namespace gpu

void raise_engine_sizes(Queue& queue,
                        const std::uint32_t* found,
                        const std::uint32_t* wanted,
                        const std::uint32_t* chunks,
                        std::size_t count,
                        std::uint32_t* faults) {
  using gpu::RaiseEngineSizes;
  gpu::simt::launch(queue,
                    (count + RaiseEngineSizes::kThreads - 1) / RaiseEngineSizes::kThreads,
                    RaiseEngineSizes{found, wanted, chunks, static_cast<u32>(count), faults});
}

}  // namespace headrace
