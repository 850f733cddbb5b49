#pragma once

// simt.h for nvcc.

#include <type_traits>

#include "simt/queue.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750
#error "headrace's kernels need compute capability 7.5: see CMAKE_CUDA_ARCHITECTURES"
#endif

#define SIMT_DEVICE __device__ __forceinline__
#define SIMT_DEVICE_NOINLINE __device__ __noinline__
#define SIMT_HOST_DEVICE __host__ __device__ inline
// Tables: SIMT_CONSTANT u8 kTable[4] = {...};  for lanes that read different entries, SIMT_TABLE.
#define SIMT_CONSTANT static __constant__ const
#define SIMT_TABLE static __device__ const
#ifdef __CUDA_ARCH__
#define SIMT_UNROLL _Pragma("unroll")
#define SIMT_NO_UNROLL _Pragma("unroll 1")
#else  // the host's compiler, for what is SIMT_HOST_DEVICE
#define SIMT_UNROLL
#define SIMT_NO_UNROLL
#endif

namespace headrace::gpu::simt {

inline constexpr unsigned kWarp = 32;

SIMT_DEVICE unsigned thread_index() { return threadIdx.x; }
SIMT_DEVICE unsigned cta_size() { return blockDim.x; }
SIMT_DEVICE unsigned cta_index() { return blockIdx.x; }
SIMT_DEVICE unsigned grid_size() { return gridDim.x; }

SIMT_DEVICE void sync_cta() { __syncthreads(); }
SIMT_DEVICE void sync_warp() { __syncwarp(); }
// Orders this thread's writes before its later ones, for all threads of the device.
// Between CTAs of a launch. Who waits sees by load_shared_cache what the one that signals, and
// threads that it synced with, had written by store_shared_cache. That one must have begun to run,
// by a count of those that have for instance, as a device may have no room for all CTAs.
SIMT_DEVICE void signal(u32* p, u32 value) {
  __threadfence();
  atomicExch(p, value);
}
// Until *p is `least`, at least.
SIMT_DEVICE void wait_for(const u32* p, u32 least) {
  while (*static_cast<const volatile u32*>(p) < least) {
  }
  __threadfence();
}

inline constexpr unsigned kAll = ~0u;

template <class T>
SIMT_DEVICE T shuffle(T value, unsigned lane, unsigned width = kWarp) {
  return __shfl_sync(kAll, value, static_cast<int>(lane), static_cast<int>(width));
}
template <class T>
SIMT_DEVICE T shuffle_up(T value, unsigned delta, unsigned width = kWarp) {
  return __shfl_up_sync(kAll, value, delta, static_cast<int>(width));
}
template <class T>
SIMT_DEVICE T shuffle_down(T value, unsigned delta, unsigned width = kWarp) {
  return __shfl_down_sync(kAll, value, delta, static_cast<int>(width));
}
template <class T>
SIMT_DEVICE T shuffle_xor(T value, unsigned mask, unsigned width = kWarp) {
  return __shfl_xor_sync(kAll, value, static_cast<int>(mask), static_cast<int>(width));
}
SIMT_DEVICE u32 ballot(bool vote) { return __ballot_sync(kAll, vote); }
SIMT_DEVICE bool any(bool vote) { return __any_sync(kAll, vote); }
SIMT_DEVICE bool all(bool vote) { return __all_sync(kAll, vote); }
// The lanes that hold the same value.
SIMT_DEVICE u32 match(u32 value) { return __match_any_sync(kAll, value); }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
SIMT_DEVICE u32 reduce_add(u32 value) { return __reduce_add_sync(kAll, value); }
SIMT_DEVICE u32 reduce_min(u32 value) { return __reduce_min_sync(kAll, value); }
SIMT_DEVICE u32 reduce_max(u32 value) { return __reduce_max_sync(kAll, value); }
SIMT_DEVICE u32 reduce_or(u32 value) { return __reduce_or_sync(kAll, value); }
#else
template <class Operation>
SIMT_DEVICE u32 fold(u32 value, const Operation& operation) {
  for (unsigned d = kWarp / 2; d != 0; d >>= 1) value = operation(value, shuffle_xor(value, d));
  return value;
}
SIMT_DEVICE u32 reduce_add(u32 value) {
  return fold(value, [](u32 a, u32 b) { return a + b; });
}
SIMT_DEVICE u32 reduce_min(u32 value) {
  return fold(value, [](u32 a, u32 b) { return min(a, b); });
}
SIMT_DEVICE u32 reduce_max(u32 value) {
  return fold(value, [](u32 a, u32 b) { return max(a, b); });
}
SIMT_DEVICE u32 reduce_or(u32 value) {
  return fold(value, [](u32 a, u32 b) { return a | b; });
}
#endif

// Relaxed; each gives the value before.
template <class T>
SIMT_DEVICE T atomic_add(T* p, T value) {
  if constexpr (sizeof(T) == 8)
    return static_cast<T>(atomicAdd(reinterpret_cast<unsigned long long*>(p),
                                    static_cast<unsigned long long>(value)));
  else
    return static_cast<T>(atomicAdd(reinterpret_cast<unsigned*>(p), static_cast<unsigned>(value)));
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

// To shared memory that other threads read or write meanwhile: a reader takes the old words as well
// as the new, and of several writers any may be the last. compute-sanitizer sees instructions, and
// takes a race for intended where they are atomic ones only. A relaxed, or a volatile, load or
// store of shared memory is the plain instruction to it; so the loads need not change, and the
// stores cannot without taking up to twice the time.
template <class T>
SIMT_DEVICE void store_relaxed(T* p, T value) {
#ifdef HEADRACE_RACECHECK
  if constexpr (sizeof(T) == sizeof(u16)) {
    for (u16 seen = *p, now; (now = atomicCAS(p, seen, value)) != seen;) seen = now;
  } else {
    for (u32 k = 0; k < sizeof(T) / sizeof(u32); ++k)
      atomicExch(reinterpret_cast<u32*>(p) + k, reinterpret_cast<const u32*>(&value)[k]);
  }
#else
  *p = value;
#endif
}
// Of shared memory that others store_relaxed meanwhile. A plain load, which no loop here can do
// without: as a volatile one it took twice the time of lz4 and snappy (H100).
template <class T>
SIMT_DEVICE T load_relaxed(const T* p) {
  return *p;
}

// Memory that nobody writes while the kernel runs.
template <class T>
SIMT_DEVICE T load_constant(const T* p) {
  if constexpr (std::is_same_v<T, Quad>) {
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(p));
    return {v.x, v.y, v.z, v.w};
  } else if constexpr (std::is_same_v<T, Pair>) {
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(p));
    return {v.x, v.y};
  } else if constexpr (std::is_same_v<T, u64>) {
    return __ldg(reinterpret_cast<const unsigned long long*>(p));
  } else {
    return __ldg(p);
  }
}
// Past the cache of one multiprocessor: what other CTAs write meanwhile.
SIMT_DEVICE u32 load_shared_cache(const u32* p) { return __ldcg(p); }
SIMT_DEVICE Quad load_shared_cache(const Quad* p) {
  const uint4 v = __ldcg(reinterpret_cast<const uint4*>(p));
  return {v.x, v.y, v.z, v.w};
}
SIMT_DEVICE u8 load_shared_cache(const u8* p) { return __ldcg(p); }
SIMT_DEVICE void store_shared_cache(u32* p, u32 value) { __stcg(p, value); }
SIMT_DEVICE void store_shared_cache(u8* p, u8 value) { __stcg(p, value); }
// Asks for the line of p, which must be readable.
SIMT_DEVICE void prefetch(const void* p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }

// Shared memory by 32-bit address: what the innermost loops of decoders count in.
using SharedAddress = u32;
template <class T>
SIMT_DEVICE SharedAddress shared_address(const T* p) {
  return static_cast<u32>(__cvta_generic_to_shared(p));
}
SIMT_DEVICE u32 load_shared(SharedAddress a) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(a));
  return v;
}
SIMT_DEVICE Pair load_shared_pair(SharedAddress a) {
  Pair v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(a));
  return v;
}
SIMT_DEVICE void store_shared_quad(SharedAddress a, Quad v) {
  asm volatile(
      "st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
}

// 16 bytes from device to shared memory, both aligned; done after copy_wait() and a sync. They say
// "memory": a thread that waits for its own copies has no barrier behind the wait, and without one
// the compiler could move its loads of what was copied above the wait, or its stores to what is
// copied below the copy.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
SIMT_DEVICE void copy_async(void* shared, const void* device) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<u32>(__cvta_generic_to_shared(shared))),
               "l"(device)
               : "memory");
}
SIMT_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last `kept` groups that this thread committed have arrived.
template <int kept = 0>
SIMT_DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kept) : "memory");
}
#else
// They are done at once.
SIMT_DEVICE void copy_async(void* shared, const void* device) {
  const uint4 v = __ldcg(static_cast<const uint4*>(device));
  store_shared_quad(shared_address(shared), {v.x, v.y, v.z, v.w});
}
SIMT_DEVICE void copy_commit() {}
template <int kept = 0>
SIMT_DEVICE void copy_wait() {
  asm volatile("" ::: "memory");
}
#endif

SIMT_DEVICE unsigned popcount(u32 v) { return static_cast<unsigned>(__popc(v)); }
SIMT_DEVICE unsigned leading_zeros(u32 v) { return static_cast<unsigned>(__clz(v)); }
SIMT_DEVICE unsigned trailing_zeros(u32 v) { return v ? __ffs(v) - 1 : 32; }
SIMT_DEVICE unsigned trailing_zeros(u64 v) {
  return v ? __ffsll(static_cast<long long>(v)) - 1 : 64;
}
SIMT_DEVICE u32 reverse_bits(u32 v) { return __brev(v); }
// The low word of (high:low) >> (shift mod 32).
SIMT_DEVICE u32 funnel_right(u32 low, u32 high, u32 shift) {
  return __funnelshift_r(low, high, shift);
}
// The high word of (high:low) << (shift mod 32).
SIMT_DEVICE u32 funnel_left(u32 low, u32 high, u32 shift) {
  return __funnelshift_l(low, high, shift);
}
// Byte i of the result is byte (selector >> 4 i & 7) of (b:a).
SIMT_DEVICE u32 permute_bytes(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }
// The sum and the products of bytes of a with bytes of b.
SIMT_DEVICE u32 dot_bytes(u32 a, u32 b, u32 sum = 0) { return __dp4a(a, b, sum); }
SIMT_DEVICE u64 multiply_high(u64 a, u64 b) { return __umul64hi(a, b); }

// In src/cuda.
void check_launch(const char* kernel);
void allow_shared(const void* entry, unsigned nbytes);
// Makes the queue's device the calling thread's; what it returns is for leave_device.
void* enter_device(const Queue& queue);
void leave_device(void* entered) noexcept;

class DeviceScope {
 public:
  explicit DeviceScope(const Queue& queue) : entered_(enter_device(queue)) {}
  ~DeviceScope() { leave_device(entered_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  void* entered_;
};

// The threads that a multiprocessor has at once.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications
#if !defined(__CUDA_ARCH__)
inline constexpr unsigned kMostThreads = 2048;
#elif __CUDA_ARCH__ < 800
inline constexpr unsigned kMostThreads = 1024;
#elif __CUDA_ARCH__ / 10 == 86 || __CUDA_ARCH__ / 10 == 89 || __CUDA_ARCH__ >= 1200
inline constexpr unsigned kMostThreads = 1536;
#else
inline constexpr unsigned kMostThreads = 2048;
#endif

template <class Kernel>
constexpr unsigned min_ctas() {
  if constexpr (requires { Kernel::kMinCtas; }) {
    constexpr unsigned most = kMostThreads / Kernel::kThreads;
    return Kernel::kMinCtas < most ? Kernel::kMinCtas : most;
  } else {
    return 1;
  }
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, min_ctas<Kernel>())
    entry(const __grid_constant__ Kernel kernel) {
  extern __shared__ __align__(16) unsigned char memory[];
  kernel(*reinterpret_cast<typename Kernel::Shared*>(memory));
}

template <class Kernel>
void launch(Queue& queue, std::size_t ctas, const Kernel& kernel) {
  if (ctas == 0) return;
  static_assert(fits_where_it_runs<Kernel>());
  constexpr unsigned shared =
      std::is_empty_v<typename Kernel::Shared> ? 0 : sizeof(typename Kernel::Shared);
  const unsigned grid = grid_ctas(ctas);
  const auto function = entry<Kernel>;
  const DeviceScope scope(queue);
  if constexpr (shared > 48 * 1024) allow_shared(reinterpret_cast<const void*>(function), shared);
  function<<<grid, Kernel::kThreads, shared, static_cast<cudaStream_t>(queue.native())>>>(kernel);
  check_launch(__PRETTY_FUNCTION__);
}

}  // namespace headrace::gpu::simt
