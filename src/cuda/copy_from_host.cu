#include <algorithm>

#include "cuda/copy_from_host.h"
#include "simt/simt.h"

namespace headrace {
namespace gpu {
namespace {

struct CopyFromHost {
  static constexpr unsigned kThreads = 256;
  // So many have as much on its way as the bus takes.
  static constexpr std::size_t kMostCtas = 32;
  using Shared = simt::NoShared;
  struct alignas(16) Unit {
    u32 words[4];
  };
  const Unit* source;
  Unit* target;
  u64 nbytes;
  u32 ctas;

  SIMT_DEVICE void operator()(Shared&) const {
    const u64 first = u64{simt::cta_index()} * kThreads + simt::thread_index();
    const u64 units = nbytes / sizeof(Unit), rest = nbytes % sizeof(Unit);
    for (u64 i = first; i < units; i += u64{ctas} * kThreads) target[i] = source[i];
    if (first < rest) {
      const u64 at = units * sizeof(Unit) + first;
      reinterpret_cast<u8*>(target)[at] = reinterpret_cast<const u8*>(source)[at];
    }
  }
};

}  // namespace
}  // namespace gpu

void copy_from_host(Queue& queue, void* target, const void* source, std::size_t nbytes) {
  using gpu::CopyFromHost;
  using Unit = CopyFromHost::Unit;
  constexpr std::size_t kOfCta = CopyFromHost::kThreads * sizeof(Unit);
  const std::size_t ctas = std::clamp<std::size_t>(nbytes / kOfCta, 1, CopyFromHost::kMostCtas);
  gpu::simt::launch(queue,
                    static_cast<u32>(ctas),
                    CopyFromHost{static_cast<const Unit*>(source),
                                 static_cast<Unit*>(target),
                                 nbytes,
                                 static_cast<u32>(ctas)});
}

}  // namespace headrace
