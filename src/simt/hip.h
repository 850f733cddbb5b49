#pragma once

// simt.h for HIP, the compiler of AMD's GPUs, in the names that it has for what gpu.h says in
// CUDA's. No backend of headrace runs this: the target check_hip compiles it, so that kernels stay
// free of what only one vendor has. Where HIP has no such instruction, what is here is right and
// slow.
//
// Warps are of 32 threads here too. A wavefront of 64 lanes is two of them: lanes that do not take
// part are out of its mask, and what one half asks of its lanes it gets of its own 32.

#include <hip/hip_runtime.h>

#include <type_traits>

#include "simt/queue.h"

#define SIMT_DEVICE __device__ __forceinline__
#define SIMT_DEVICE_NOINLINE __device__ __attribute__((noinline))
#define SIMT_HOST_DEVICE __host__ __device__ inline
#define SIMT_CONSTANT static __constant__ const
#define SIMT_TABLE static __device__ const
#define SIMT_UNROLL _Pragma("unroll")
#define SIMT_NO_UNROLL _Pragma("clang loop unroll(disable)")

namespace headrace::gpu::simt {

inline constexpr unsigned kWarp = 32;

SIMT_DEVICE unsigned thread_index() { return threadIdx.x; }
SIMT_DEVICE unsigned cta_size() { return blockDim.x; }
SIMT_DEVICE unsigned cta_index() { return blockIdx.x; }
SIMT_DEVICE unsigned grid_size() { return gridDim.x; }

SIMT_DEVICE void sync_cta() { __syncthreads(); }
SIMT_DEVICE void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
SIMT_DEVICE void signal(u32* p, u32 value) {
  __hip_atomic_store(p, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}
SIMT_DEVICE void wait_for(const u32* p, u32 least) {
  while (__hip_atomic_load(p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < least) {
  }
}

template <class T>
SIMT_DEVICE T shuffle(T value, unsigned lane, unsigned width = kWarp) {
  return static_cast<T>(__shfl(value, static_cast<int>(lane), static_cast<int>(width)));
}
template <class T>
SIMT_DEVICE T shuffle_up(T value, unsigned delta, unsigned width = kWarp) {
  return static_cast<T>(__shfl_up(value, delta, static_cast<int>(width)));
}
template <class T>
SIMT_DEVICE T shuffle_down(T value, unsigned delta, unsigned width = kWarp) {
  return static_cast<T>(__shfl_down(value, delta, static_cast<int>(width)));
}
template <class T>
SIMT_DEVICE T shuffle_xor(T value, unsigned mask, unsigned width = kWarp) {
  return static_cast<T>(__shfl_xor(value, static_cast<int>(mask), static_cast<int>(width)));
}
SIMT_DEVICE u32 ballot(bool vote) {
  return static_cast<u32>(__ballot(vote) >> (__lane_id() & kWarp));
}
SIMT_DEVICE bool any(bool vote) { return ballot(vote) != 0; }
SIMT_DEVICE bool all(bool vote) { return ballot(!vote) == 0; }

// Combines the values of the lanes that take part.
template <class F>
SIMT_DEVICE u32 fold(u32 value, u32 start, F combine) {
  for (u32 live = ballot(true); live; live &= live - 1)
    start = combine(start, shuffle(value, static_cast<unsigned>(__builtin_ctz(live))));
  return start;
}
SIMT_DEVICE u32 match(u32 value) {
  u32 same = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) same |= u32{shuffle(value, lane) == value} << lane;
  return same & ballot(true);
}
SIMT_DEVICE u32 reduce_add(u32 value) {
  return fold(value, 0, [](u32 a, u32 b) { return a + b; });
}
SIMT_DEVICE u32 reduce_min(u32 value) {
  return fold(value, ~u32{0}, [](u32 a, u32 b) { return a < b ? a : b; });
}
SIMT_DEVICE u32 reduce_max(u32 value) {
  return fold(value, 0, [](u32 a, u32 b) { return a < b ? b : a; });
}
SIMT_DEVICE u32 reduce_or(u32 value) {
  return fold(value, 0, [](u32 a, u32 b) { return a | b; });
}

template <class T>
SIMT_DEVICE T atomic_add(T* p, T value) {
  return __hip_atomic_fetch_add(p, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
SIMT_DEVICE u32 atomic_or(u32* p, u32 value) { return atomicOr(p, value); }
SIMT_DEVICE u32 atomic_and(u32* p, u32 value) { return atomicAnd(p, value); }
SIMT_DEVICE u32 atomic_xor(u32* p, u32 value) { return atomicXor(p, value); }
SIMT_DEVICE u32 atomic_min(u32* p, u32 value) { return atomicMin(p, value); }
SIMT_DEVICE u32 atomic_max(u32* p, u32 value) { return atomicMax(p, value); }
SIMT_DEVICE i32 atomic_max(i32* p, i32 value) { return atomicMax(p, value); }
SIMT_DEVICE u32 atomic_exchange(u32* p, u32 value) { return atomicExch(p, value); }
SIMT_DEVICE u32 atomic_compare_exchange(u32* p, u32 expected, u32 value) {
  return atomicCAS(p, expected, value);
}

template <class T>
SIMT_DEVICE void store_relaxed(T* p, T value) {
  *p = value;
}
template <class T>
SIMT_DEVICE T load_relaxed(const T* p) {
  return *p;
}
template <class T>
SIMT_DEVICE T load_constant(const T* p) {
  return *p;
}
SIMT_DEVICE u32 load_shared_cache(const u32* p) {
  return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
SIMT_DEVICE Quad load_shared_cache(const Quad* p) {
  return {load_shared_cache(&p->x),
          load_shared_cache(&p->y),
          load_shared_cache(&p->z),
          load_shared_cache(&p->w)};
}
SIMT_DEVICE u8 load_shared_cache(const u8* p) {
  return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
SIMT_DEVICE void store_shared_cache(u32* p, u32 value) {
  __hip_atomic_store(p, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
SIMT_DEVICE void store_shared_cache(u8* p, u8 value) {
  __hip_atomic_store(p, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
SIMT_DEVICE void prefetch(const void* p) { __builtin_prefetch(p); }

using SharedAddress = u32;
template <class T>
using InShared = __attribute__((address_space(3))) T;
template <class T>
SIMT_DEVICE SharedAddress shared_address(const T* p) {
  return static_cast<SharedAddress>(reinterpret_cast<std::uintptr_t>((InShared<const T>*)p));
}
template <class T>
SIMT_DEVICE InShared<T>* in_shared(SharedAddress a) {
  return reinterpret_cast<InShared<T>*>(a);
}
SIMT_DEVICE u32 load_shared(SharedAddress a) { return *in_shared<const u32>(a); }
SIMT_DEVICE Pair load_shared_pair(SharedAddress a) {
  return {in_shared<const u32>(a)[0], in_shared<const u32>(a)[1]};
}
SIMT_DEVICE void store_shared_quad(SharedAddress a, Quad v) {
  InShared<u32>* const p = in_shared<u32>(a);
  p[0] = v.x, p[1] = v.y, p[2] = v.z, p[3] = v.w;
}

// They are done at once.
SIMT_DEVICE void copy_async(void* shared, const void* device) {
  *static_cast<Quad*>(shared) = *static_cast<const Quad*>(device);
}
SIMT_DEVICE void copy_commit() {}
template <int kept = 0>
SIMT_DEVICE void copy_wait() {}

SIMT_DEVICE unsigned popcount(u32 v) { return static_cast<unsigned>(__builtin_popcount(v)); }
SIMT_DEVICE unsigned leading_zeros(u32 v) {
  return v ? static_cast<unsigned>(__builtin_clz(v)) : 32;
}
SIMT_DEVICE unsigned trailing_zeros(u32 v) {
  return v ? static_cast<unsigned>(__builtin_ctz(v)) : 32;
}
SIMT_DEVICE unsigned trailing_zeros(u64 v) {
  return v ? static_cast<unsigned>(__builtin_ctzll(v)) : 64;
}
SIMT_DEVICE u32 reverse_bits(u32 v) { return __builtin_bitreverse32(v); }
SIMT_DEVICE u32 funnel_right(u32 low, u32 high, u32 shift) {
  return static_cast<u32>((u64{high} << 32 | low) >> (shift & 31));
}
SIMT_DEVICE u32 funnel_left(u32 low, u32 high, u32 shift) {
  return static_cast<u32>((u64{high} << 32 | low) << (shift & 31) >> 32);
}
SIMT_DEVICE u32 permute_bytes(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }
SIMT_DEVICE u32 dot_bytes(u32 a, u32 b, u32 sum = 0) {
  for (unsigned shift = 0; shift < 32; shift += 8) sum += (a >> shift & 255) * (b >> shift & 255);
  return sum;
}
SIMT_DEVICE u64 multiply_high(u64 a, u64 b) { return __umul64hi(a, b); }

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads) entry(const Kernel kernel) {
  extern __shared__ __align__(16) unsigned char memory[];
  kernel(*reinterpret_cast<typename Kernel::Shared*>(memory));
}

template <class Kernel>
void launch(Queue& queue, std::size_t ctas, const Kernel& kernel) {
  if (ctas == 0) return;
  static_assert(fits_where_it_runs<Kernel>());
  constexpr unsigned shared =
      std::is_empty_v<typename Kernel::Shared> ? 0 : sizeof(typename Kernel::Shared);
  const auto stream = static_cast<hipStream_t>(queue.native());
  entry<Kernel><<<grid_ctas(ctas), Kernel::kThreads, shared, stream>>>(kernel);
}

}  // namespace headrace::gpu::simt
