#pragma once

// What kernels are written against. One source, two compilers: nvcc makes GPU code of it, the host
// compiler makes code that runs a CTA's threads as fibers (simt/host.h), so that every kernel can
// be tested, sanitised and fuzzed without a GPU. A third, hipcc, only checks (simt/hip.h).
//
// A kernel is a struct: its members are the arguments, operator() is what each thread does.
//
//   struct Scale {
//     static constexpr unsigned kThreads = 256;  // of a CTA
//     struct Shared { float row[256]; };         // or simt::NoShared
//     float* data; float factor;
//     SIMT_DEVICE void operator()(Shared& shared) const;
//   };
//   simt::launch(queue, ctas, Scale{data, 2.0f});
//
// Rules, checked on the host as far as a run can check them:
// - A CTA is what CUDA calls a block of threads.
// - Warps have 32 threads. Warp operations are for all threads of a warp that have not returned,
//   all at the same call; the same holds for sync_cta and the CTA.
// - Memory that another thread of the warp or CTA wrote needs a sync in between. Shared memory
//   starts with arbitrary contents.
// - A CTA never waits for another CTA.
// - Kernels throw nothing, allocate nothing, and have no objects with destructors on the stack.
//
// Everything is in namespace headrace::SIMT_SPACE, `gpu` or `host`, because both are linked into
// one library.

#include <cstdint>

#if defined(__CUDACC__) || defined(__HIP__)
#define SIMT_SPACE gpu
#else
#define SIMT_SPACE host
#endif

namespace headrace {
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
}  // namespace headrace

namespace headrace::SIMT_SPACE::simt {

struct NoShared {};
// Loaded and stored by one instruction.
struct alignas(8) Pair {
  u32 x, y;
};
struct alignas(16) Quad {
  u32 x, y, z, w;
};

}  // namespace headrace::SIMT_SPACE::simt

#if defined(__CUDACC__)
#include "simt/gpu.h"
#elif defined(__HIP__)
#include "simt/hip.h"
#else
#include "simt/host.h"
#endif

namespace headrace::SIMT_SPACE::simt {

static_assert(kWarp == 32, "votes are u32, a lane a bit, and kernels fold them as such");

SIMT_DEVICE unsigned lane_index() { return thread_index() % kWarp; }
SIMT_DEVICE unsigned warp_index() { return thread_index() / kWarp; }

// Sums over the lanes before and including this one.
template <class T>
SIMT_DEVICE T inclusive_sum(T value) {
  for (unsigned d = 1; d < kWarp; d <<= 1) {
    const T before = shuffle_up(value, d);
    if (lane_index() >= d) value += before;
  }
  return value;
}

// By a whole warp: the last of `count` ascending keys that is at most `key`. The first one is;
// key_of(i) gives the i-th.
template <class Key, class KeyOf>
SIMT_DEVICE u32 last_at_or_before(u32 count, Key key, const KeyOf& key_of) {
  u32 first = 0;
  while (count > 1) {
    const u32 step = (count + kWarp - 1) / kWarp, at = lane_index() * step;
    const u32 votes = ballot(at < count && key_of(first + at) <= key);
    const u32 skipped = (popcount(votes) - 1) * step;
    first += skipped;
    count = count - skipped < step ? count - skipped : step;
  }
  return first;
}

}  // namespace headrace::SIMT_SPACE::simt
