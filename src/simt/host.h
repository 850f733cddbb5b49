#pragma once

// simt.h for the host compiler: the threads of a CTA are fibers of one operating system thread,
// and a seeded scheduler picks who runs next. A missing sync gives wrong results on some seed, and
// a sync that not all threads reach is an error.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <thread>
#include <type_traits>

#include "simt/queue.h"

#define SIMT_DEVICE inline
#define SIMT_DEVICE_NOINLINE inline
#define SIMT_HOST_DEVICE inline
#define SIMT_CONSTANT static constexpr
#define SIMT_TABLE static constexpr
#define SIMT_UNROLL
#define SIMT_NO_UNROLL

namespace headrace::host::simt {

inline constexpr unsigned kWarp = 32;

// The fiber that runs on this operating system thread.
struct Running {
  unsigned thread;
  unsigned threads;
  unsigned cta;
  unsigned ctas;
  std::byte* shared;
};
extern thread_local constinit Running running;

enum class Sync : u8 { cta, warp, shuffle, vote, match, reduce };
// Waits until all threads of the CTA (Sync::cta) or warp that have not returned are here.
void wait(Sync kind);
// As wait, for the warp; the value that lane `from` gave, an arbitrary one if it has returned.
u64 shuffled(u64 value, unsigned from);

// `name`: of the kernel, for errors. The kernel is copied, bytes as they are.
void run(Queue& queue,
         const char* name,
         std::size_t ctas,
         unsigned threads,
         std::size_t shared_nbytes,
         void (*body)(const void* kernel, void* shared),
         const void* kernel,
         std::size_t kernel_nbytes);

SIMT_DEVICE unsigned thread_index() { return running.thread; }
SIMT_DEVICE unsigned cta_size() { return running.threads; }
SIMT_DEVICE unsigned cta_index() { return running.cta; }
SIMT_DEVICE unsigned grid_size() { return running.ctas; }

SIMT_DEVICE void sync_cta() { wait(Sync::cta); }
SIMT_DEVICE void sync_warp() { wait(Sync::warp); }
SIMT_DEVICE void signal(u32* p, u32 value) { __atomic_store_n(p, value, __ATOMIC_RELEASE); }
// The fiber keeps its thread: CTAs that have begun have others.
SIMT_DEVICE void wait_for(const u32* p, u32 least) {
  while (__atomic_load_n(p, __ATOMIC_ACQUIRE) < least) std::this_thread::yield();
}

template <class T>
u64 to_slot(T value) {
  static_assert(sizeof(T) <= 8);
  u64 slot = 0;
  std::memcpy(&slot, &value, sizeof(T));
  return slot;
}
template <class T>
T from_slot(u64 slot) {
  T value;
  std::memcpy(&value, &slot, sizeof(T));
  return value;
}
template <class T>
T shuffle_from(T value, unsigned from) {
  return from_slot<T>(shuffled(to_slot(value), from));
}

template <class T>
SIMT_DEVICE T shuffle(T value, unsigned lane, unsigned width = kWarp) {
  const unsigned self = thread_index() % kWarp;
  return shuffle_from(value, (self & ~(width - 1)) | (lane & (width - 1)));
}
template <class T>
SIMT_DEVICE T shuffle_up(T value, unsigned delta, unsigned width = kWarp) {
  const unsigned self = thread_index() % kWarp, at = self & (width - 1);
  return shuffle_from(value, at >= delta ? self - delta : self);
}
template <class T>
SIMT_DEVICE T shuffle_down(T value, unsigned delta, unsigned width = kWarp) {
  const unsigned self = thread_index() % kWarp, at = self & (width - 1);
  return shuffle_from(value, at + delta < width ? self + delta : self);
}
template <class T>
SIMT_DEVICE T shuffle_xor(T value, unsigned mask, unsigned width = kWarp) {
  const unsigned self = thread_index() % kWarp, to = self ^ mask;
  return shuffle_from(value, (to & ~(width - 1)) == (self & ~(width - 1)) ? to : self);
}

// Of the lanes that have not returned.
u32 ballot(bool vote);
u32 match(u32 value);
u32 reduce_add(u32 value);
u32 reduce_min(u32 value);
u32 reduce_max(u32 value);
u32 reduce_or(u32 value);
SIMT_DEVICE bool any(bool vote) { return ballot(vote) != 0; }
SIMT_DEVICE bool all(bool vote) { return ballot(!vote) == 0; }

template <class T>
SIMT_DEVICE T atomic_add(T* p, T value) {
  return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}
SIMT_DEVICE u32 atomic_or(u32* p, u32 v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }
SIMT_DEVICE u32 atomic_and(u32* p, u32 v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }
SIMT_DEVICE u32 atomic_xor(u32* p, u32 v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }
template <class T, class F>
T atomic_update(T* p, F next) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (
      !__atomic_compare_exchange_n(p, &old, next(old), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
SIMT_DEVICE u32 atomic_min(u32* p, u32 value) {
  return atomic_update(p, [value](u32 old) { return std::min(old, value); });
}
SIMT_DEVICE u32 atomic_max(u32* p, u32 value) {
  return atomic_update(p, [value](u32 old) { return std::max(old, value); });
}
SIMT_DEVICE i32 atomic_max(i32* p, i32 value) {
  return atomic_update(p, [value](i32 old) { return std::max(old, value); });
}
SIMT_DEVICE u32 atomic_exchange(u32* p, u32 value) {
  return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);
}
SIMT_DEVICE u32 atomic_compare_exchange(u32* p, u32 expected, u32 value) {
  __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

template <class T>
SIMT_DEVICE void store_relaxed(T* p, T value) {
  *p = value;  // the threads of a CTA are fibers of one thread
}
template <class T>
SIMT_DEVICE T load_relaxed(const T* p) {
  return *p;
}

#ifdef HEADRACE_SIMT_SHADOW
void note_constant(const void* p, std::size_t nbytes);  // simt/shadow.h
#else
inline void note_constant(const void*, std::size_t) {}
#endif
template <class T>
SIMT_DEVICE T load_constant(const T* p) {
  note_constant(p, sizeof(T));
  return *p;
}
SIMT_DEVICE u32 load_shared_cache(const u32* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
SIMT_DEVICE Quad load_shared_cache(const Quad* p) {
  return {load_shared_cache(&p->x),
          load_shared_cache(&p->y),
          load_shared_cache(&p->z),
          load_shared_cache(&p->w)};
}
SIMT_DEVICE u8 load_shared_cache(const u8* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
SIMT_DEVICE void store_shared_cache(u32* p, u32 v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
SIMT_DEVICE void store_shared_cache(u8* p, u8 v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
#ifdef HEADRACE_SIMT_SHADOW
inline void prefetch(const void*) {}  // what comes of a race is dropped
#else
SIMT_DEVICE void prefetch(const void* p) { static_cast<void>(*static_cast<const volatile u8*>(p)); }
#endif

using SharedAddress = u32;
template <class T>
SIMT_DEVICE SharedAddress shared_address(const T* p) {
  return static_cast<u32>(reinterpret_cast<const std::byte*>(p) - running.shared);
}
SIMT_DEVICE u32 load_shared(SharedAddress a) {
  return *reinterpret_cast<const u32*>(running.shared + a);
}
SIMT_DEVICE Pair load_shared_pair(SharedAddress a) {
  return *reinterpret_cast<const Pair*>(running.shared + a);
}
SIMT_DEVICE void store_shared_quad(SharedAddress a, Quad v) {
  *reinterpret_cast<Quad*>(running.shared + a) = v;
}

// Arrives at the copy_wait, so that one too few shows.
void copy_async(void* shared, const void* device);
void copy_commit();
void wait_copies(unsigned kept);
template <int kept = 0>
SIMT_DEVICE void copy_wait() {
  wait_copies(kept);
}

SIMT_DEVICE unsigned popcount(u32 v) { return static_cast<unsigned>(std::popcount(v)); }
SIMT_DEVICE unsigned leading_zeros(u32 v) { return static_cast<unsigned>(std::countl_zero(v)); }
SIMT_DEVICE unsigned trailing_zeros(u32 v) { return static_cast<unsigned>(std::countr_zero(v)); }
SIMT_DEVICE unsigned trailing_zeros(u64 v) { return static_cast<unsigned>(std::countr_zero(v)); }
SIMT_DEVICE u32 reverse_bits(u32 v) {
  v = (v >> 1 & 0x55555555) | (v & 0x55555555) << 1;
  v = (v >> 2 & 0x33333333) | (v & 0x33333333) << 2;
  v = (v >> 4 & 0x0f0f0f0f) | (v & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(v);
}
SIMT_DEVICE u32 funnel_right(u32 low, u32 high, u32 shift) {
  return static_cast<u32>((u64{high} << 32 | low) >> (shift & 31));
}
SIMT_DEVICE u32 funnel_left(u32 low, u32 high, u32 shift) {
  return static_cast<u32>((u64{high} << 32 | low) << (shift & 31) >> 32);
}
SIMT_DEVICE u32 permute_bytes(u32 a, u32 b, u32 selector) {
  const u64 from = u64{b} << 32 | a;
  u32 result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<u32>(from >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  return result;
}
SIMT_DEVICE u32 dot_bytes(u32 a, u32 b, u32 sum = 0) {
  for (unsigned shift = 0; shift < 32; shift += 8) sum += (a >> shift & 255) * (b >> shift & 255);
  return sum;
}
SIMT_DEVICE u64 multiply_high(u64 a, u64 b) {
  __extension__ using u128 = unsigned __int128;
  return static_cast<u64>(static_cast<u128>(a) * b >> 64);
}

template <class Kernel>
void launch(Queue& queue, std::size_t ctas, const Kernel& kernel) {
  using Shared = typename Kernel::Shared;
  static_assert(alignof(Shared) <= 16);
  static_assert(std::is_trivially_copyable_v<Kernel> && alignof(Kernel) <= 16);
  static_assert(fits_where_it_runs<Kernel>());
  if constexpr (requires { Kernel::kMinCtas; }) static_assert(Kernel::kMinCtas > 0);
  run(
      queue,
      __PRETTY_FUNCTION__,
      ctas,
      Kernel::kThreads,
      sizeof(Shared),
      [](const void* self, void* shared) {
        (*static_cast<const Kernel*>(self))(*static_cast<Shared*>(shared));
      },
      &kernel,
      sizeof(kernel));
}

}  // namespace headrace::host::simt
