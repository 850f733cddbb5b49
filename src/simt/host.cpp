#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/per_process.h"
#include "base/thread_pool.h"
#include "headrace/error.h"
#include "simt/fiber.h"
#include "simt/host_queue.h"
#include "simt/random.h"
#include "simt/shadow.h"
#include "simt/simt.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(address, size) static_cast<void>(0)
#endif

namespace headrace::host::simt {

thread_local constinit Running running{};

namespace {

constexpr const char* kSyncNames[] = {
    "sync_cta", "sync_warp", "a shuffle", "a vote", "match", "a reduction"};

struct Warp {
  u32 live = 0;                     // lanes that have not returned
  u32 ready = 0;                    // lanes that can run
  u32 arrived = 0;                  // lanes that wait for the warp
  u32 present = 0;                  // lanes that took part in the last operation
  std::array<Sync, kWarp> at{};     // what each waiting lane called
  std::array<u64, kWarp> slots[2];  // values exchanged, of this operation and the one before
  unsigned parity = 0;
};

#ifdef HEADRACE_SIMT_SHADOW
using LaunchShadow = Shadow;
#else
struct LaunchShadow {
  explicit LaunchShadow(const char*) {}
  void check() const {}
};
struct Unwatched {
  Unwatched() {}  // by a constructor, so that it is no unused variable
};
#endif

struct AsyncCopy {
  void* shared;
  const void* device;
  unsigned group;
};
struct AsyncCopies {
  std::vector<AsyncCopy> waiting;
  unsigned group = 0;  // the one that copies join
};

// Runs CTAs, one after the other, on the thread that has it.
class Worker {
 public:
  Worker() : fibers_(&Worker::run_thread, this) {}

  void run(LaunchShadow& shadow,
           unsigned cta,
           unsigned ctas,
           unsigned threads,
           std::size_t shared_nbytes,
           void (*body)(const void*, void*),
           const void* kernel,
           u64 seed);

  void wait(Sync kind) {
    unwatch();
    const unsigned thread = running.thread;
    Warp& warp = warps_[thread / kWarp];
    const u32 bit = 1u << thread % kWarp;
    warp.ready &= ~bit;
    warp.at[thread % kWarp] = kind;
    if (kind == Sync::cta)
      ++at_barrier_;
    else
      warp.arrived |= bit;
    fibers_.suspend();
    watch(thread);
  }

  // As wait, for the warp; gives the values of its 32 lanes, those of lanes that returned
  // arbitrary.
  const u64* exchange(Sync kind, u64 value) {
    Warp& warp = warps_[running.thread / kWarp];
    // Lanes that have read these values may go on to the next exchange before the others have.
    const unsigned parity = warp.parity;
    warp.slots[parity][running.thread % kWarp] = value;
    wait(kind);
    return warp.slots[parity].data();
  }

  // The lanes that took part in the last exchange.
  u32 live_lanes() const { return warps_[running.thread / kWarp].present; }
  AsyncCopies& copies() { return copies_[running.thread]; }

 private:
#ifdef HEADRACE_SIMT_SHADOW
  // From here on the calling fiber is in its kernel.
  void watch(unsigned thread) const {
    const std::span<const char> stack = fibers_.stack(thread);
    watched = {shadow_,
               owner(shadow_->number(), running.cta),
               stack.data(),
               stack.size(),
               running.shared,
               shared_capacity_};
  }
  static void unwatch() { watched.shadow = nullptr; }
#else
  void watch(unsigned) const {}
  static void unwatch() {}
#endif

  static void run_thread(void* self) {
    Worker& w = *static_cast<Worker*>(self);
    w.watch(running.thread);
    w.body_(w.kernel_, w.shared_.get());
    unwatch();
  }

  void start(unsigned threads, std::size_t shared_nbytes, Random& random);
  void run_warp(unsigned index, Random& random);
  void release_barrier();
  [[noreturn]] void fail(const std::string& what);
  std::string where(unsigned warp) const;

  FiberSet fibers_;
  std::vector<Warp> warps_;
  std::vector<AsyncCopies> copies_;
  std::vector<unsigned> active_;  // warps with lanes that can run
  unsigned live_ = 0;             // threads of the CTA that have not returned
  unsigned at_barrier_ = 0;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{256}); }
  };
  std::unique_ptr<std::byte, Free> shared_;
  std::size_t shared_capacity_ = 0;
  void (*body_)(const void*, void*) = nullptr;
  const void* kernel_ = nullptr;
  [[maybe_unused]] LaunchShadow* shadow_ = nullptr;
};

void Worker::start(unsigned threads, std::size_t shared_nbytes, Random& random) {
  if (shared_capacity_ < shared_nbytes) {
    shared_.reset(static_cast<std::byte*>(::operator new (shared_nbytes, std::align_val_t{256})));
    shared_capacity_ = shared_nbytes;
  }
  ASAN_UNPOISON_MEMORY_REGION(shared_.get(), shared_capacity_);
  std::memset(shared_.get(), static_cast<int>(random.below(256)), shared_nbytes);
  ASAN_POISON_MEMORY_REGION(shared_.get() + shared_nbytes, shared_capacity_ - shared_nbytes);
  fibers_.reserve(threads);
  const unsigned warps = (threads + kWarp - 1) / kWarp;
  warps_.resize(warps);
  copies_.assign(threads, {});
  active_.clear();
  for (unsigned w = 0; w < warps; ++w) {
    const unsigned lanes = std::min(kWarp, threads - w * kWarp);
    warps_[w].live = warps_[w].ready = lanes == kWarp ? ~0u : (1u << lanes) - 1;
    warps_[w].arrived = 0;
    active_.push_back(w);
  }
  live_ = threads;
  at_barrier_ = 0;
}

// Each ready lane once, in an order of its own.
void Worker::run_warp(unsigned index, Random& random) {
  Warp& warp = warps_[index];
  const u64 r = random.next();
  const unsigned first = r & 31, step = (r >> 5 & 31) | 1;
  for (unsigned i = 0; i < kWarp; ++i) {
    const unsigned lane = (first + i * step) % kWarp;
    const u32 bit = 1u << lane;
    if (!(warp.ready & bit)) continue;
    running.thread = index * kWarp + lane;
    if (fibers_.resume(running.thread)) {
      warp.ready &= ~bit;
      warp.live &= ~bit;
      --live_;
      if (!copies_[running.thread].waiting.empty())
        fail("a thread returned before its copy_async had arrived");
    }
  }
  if (warp.arrived && warp.arrived == warp.live) {
    const Sync kind = warp.at[static_cast<unsigned>(std::countr_zero(warp.live))];
    for (u32 live = warp.live; live; live &= live - 1)
      if (warp.at[static_cast<unsigned>(std::countr_zero(live))] != kind)
        fail("the lanes of a warp are at different operations: " + where(index));
    warp.arrived = 0;
    warp.ready = warp.present = warp.live;
    warp.parity ^= 1;
  }
}

void Worker::release_barrier() {
  if (at_barrier_ != live_) {
    std::string places;
    for (unsigned w = 0; w < warps_.size() && places.size() < 400; ++w)
      if (warps_[w].live) places += where(w);
    fail("threads wait for each other: " + places);
  }
  at_barrier_ = 0;
  for (unsigned w = 0; w < warps_.size(); ++w) {
    warps_[w].ready = warps_[w].live;
    if (warps_[w].live) active_.push_back(w);
  }
}

void Worker::run(LaunchShadow& shadow,
                 unsigned cta,
                 unsigned ctas,
                 unsigned threads,
                 std::size_t shared_nbytes,
                 void (*body)(const void*, void*),
                 const void* kernel,
                 u64 seed) {
  Random random(seed);
  start(threads, shared_nbytes, random);
  body_ = body;
  kernel_ = kernel;
  shadow_ = &shadow;
  running = {0, threads, cta, ctas, shared_.get()};
  while (live_) {
    if (active_.empty()) release_barrier();
    const unsigned at = random.below(static_cast<unsigned>(active_.size()));
    const unsigned index = active_[at];
    run_warp(index, random);
    if (!warps_[index].ready) {
      active_[at] = active_.back();
      active_.pop_back();
    }
  }
}

std::string Worker::where(unsigned index) const {
  const Warp& warp = warps_[index];
  std::string text;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if (!(warp.live >> lane & 1)) continue;
    const char* name = kSyncNames[static_cast<unsigned>(warp.at[lane])];
    const unsigned first = lane;
    while (lane + 1 < kWarp && warp.live >> (lane + 1) & 1 && warp.at[lane + 1] == warp.at[first])
      ++lane;
    text += "threads " + std::to_string(index * kWarp + first) + " to " +
            std::to_string(index * kWarp + lane) + " at " + name + "; ";
  }
  return text;
}

void Worker::fail(const std::string& what) {
  fibers_.abandon();
  throw Error(ErrorCode::device, "simt: CTA " + std::to_string(running.cta) + ": " + what);
}

// Those of a process. Each stack takes two mappings, and a process has some 65,000 of them: workers
// are few, and further threads wait for one.
class Workers {
 public:
  static constexpr int kMost = 16;

  static Workers& get() {
    static auto* workers = new PerProcess<Workers>;  // never destroyed: threads may outlive statics
    return workers->get();
  }

  std::unique_ptr<Worker> take() {
    const MutexLock lock(mutex_);
    while (free_.empty() && n_ >= kMost) given_.wait(mutex_);
    if (free_.empty()) {
      free_.push_back(std::make_unique<Worker>());
      ++n_;
    }
    std::unique_ptr<Worker> worker = std::move(free_.back());
    free_.pop_back();
    return worker;
  }

  void give(std::unique_ptr<Worker> worker) {
    {
      const MutexLock lock(mutex_);
      free_.push_back(std::move(worker));
    }
    given_.notify_one();
  }

 private:
  Mutex mutex_;
  ConditionVariable given_;
  std::vector<std::unique_ptr<Worker>> free_ GUARDED_BY(mutex_);
  int n_ GUARDED_BY(mutex_) = 0;
};

// This thread's, while it runs a CTA.
thread_local constinit Worker* current = nullptr;

class Turn {
 public:
  Turn() : workers_(Workers::get()), worker_(workers_.take()) { current = worker_.get(); }
  ~Turn() {
    current = nullptr;
    workers_.give(std::move(worker_));
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Workers& workers_;
  std::unique_ptr<Worker> worker_;
};

// Of the values that the live lanes gave, each with its lane as a bit.
template <class F>
u32 fold(Sync kind, u64 value, u32 start, F combine) {
  const u64* slots = current->exchange(kind, value);
  for (u32 live = current->live_lanes(); live; live &= live - 1)
    start = combine(start, slots[std::countr_zero(live)], live & -live);
  return start;
}
template <class F>
u32 reduce(u32 value, u32 start, F combine) {
  return fold(Sync::reduce, value, start, [combine](u32 so_far, u64 of_lane, u32) {
    return combine(so_far, static_cast<u32>(of_lane));
  });
}

}  // namespace

void wait(Sync kind) { current->wait(kind); }

u64 shuffled(u64 value, unsigned from) { return current->exchange(Sync::shuffle, value)[from]; }
u32 ballot(bool vote) {
  return fold(Sync::vote, vote, 0, [](u32 votes, u64 of_lane, u32 lane) {
    return of_lane ? votes | lane : votes;
  });
}
u32 match(u32 value) {
  return fold(Sync::match, value, 0, [value](u32 same, u64 of_lane, u32 lane) {
    return of_lane == value ? same | lane : same;
  });
}
u32 reduce_add(u32 value) {
  return reduce(value, 0, [](u32 a, u32 b) { return a + b; });
}
u32 reduce_min(u32 value) {
  return reduce(value, ~u32{0}, [](u32 a, u32 b) { return std::min(a, b); });
}
u32 reduce_max(u32 value) {
  return reduce(value, 0, [](u32 a, u32 b) { return std::max(a, b); });
}
u32 reduce_or(u32 value) {
  return reduce(value, 0, [](u32 a, u32 b) { return a | b; });
}

void copy_async(void* shared, const void* device) {
  const Unwatched unwatched;
  AsyncCopies& copies = current->copies();
  copies.waiting.push_back({shared, device, copies.group});
}
void copy_commit() { ++current->copies().group; }
void wait_copies(unsigned kept) {
#ifdef HEADRACE_SIMT_SHADOW
  for (const AsyncCopy& copy : current->copies().waiting)
    note(copy.device, sizeof(Quad), Access::read, __builtin_return_address(0));
#endif
  const Unwatched unwatched;
  AsyncCopies& copies = current->copies();
  std::erase_if(copies.waiting, [&](const AsyncCopy& copy) {
    if (copy.group + kept >= copies.group) return false;
    *static_cast<Quad*>(copy.shared) = *static_cast<const Quad*>(copy.device);
    return true;
  });
}

namespace {

void run_now(const char* name,
             std::size_t ctas,
             unsigned grid,
             unsigned threads,
             std::size_t shared_nbytes,
             void (*body)(const void*, void*),
             const void* kernel,
             u64 seed) {
  LaunchShadow shadow(name);
  const std::size_t first = ctas ? seed % ctas : 0;
  parallel_for(
      ctas,
      [&](std::size_t i) {
        const std::size_t cta = (first + i) % ctas;
        const Turn turn;
        current->run(shadow,
                     static_cast<unsigned>(cta),
                     grid,
                     threads,
                     shared_nbytes,
                     body,
                     kernel,
                     mix(seed ^ cta));
      },
      std::min(thread_count(), Workers::kMost));
  shadow.check();
}

}  // namespace

void run(Queue& queue,
         const char* name,
         std::size_t ctas,
         unsigned threads,
         std::size_t shared_nbytes,
         void (*body)(const void*, void*),
         const void* kernel,
         std::size_t kernel_nbytes) {
  const unsigned grid = grid_ctas(ctas);
  auto& host_queue = static_cast<HostQueue&>(queue);
  if (shared_nbytes > host_queue.shared_nbytes())
    throw Error(ErrorCode::device,
                "simt: " + std::string(name) + " takes " + std::to_string(shared_nbytes) +
                    " bytes of shared memory, of " + std::to_string(host_queue.shared_nbytes()));
  const u64 seed = host_queue.next_random();
  host_queue.give_kernel(kernel, kernel_nbytes, [=](const void* given) {
    run_now(name, ctas, grid, threads, shared_nbytes, body, given, seed);
  });
}

}  // namespace headrace::host::simt
