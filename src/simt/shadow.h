#pragma once

// Which CTAs of a launch touched each byte of memory, to find what the host run of kernels cannot
// show by wrong results: its CTAs see each other's writes at once, and on a GPU they need not.
//  1. Built with HEADRACE_SIMT_SHADOW, kernels are compiled with -fsanitize=thread, so that every
//     load and store calls __tsan_read4 and its like. These functions are this file's, in place of
//     ThreadSanitizer's runtime: it orders threads, and knows nothing of CTAs.
//  2. simt::launch makes a Shadow. What its fibers touch is noted there, but for their stacks and
//     shared memory.
//  3. An error, at the end of the launch:
//     - two CTAs touch a byte, at least one writes it, and not both by atomics or the operations
//       *_shared_cache: that one has waited for the other is not looked at;
//     - load_constant of a byte that the launch writes, even by the same thread: its cache of one
//       multiprocessor is not told of writes.
// Every access counts, not only those that a schedule brings together: one run finds what it runs
// through, whatever the seed. What memcpy and memset touch is not noted: no kernel calls them.
//
// Each byte of memory has a Cell, in pages that are never given back. It names the launch that it
// is of, so that no launch has to clear what the one before left. Most accesses find themselves
// noted in the cell and change nothing; the others exchange it, and nothing takes a lock. Two
// launches at the same time that touch the same bytes, of a common input for example, forget each
// other's notes: what they find is true, but they may find less.

#ifdef HEADRACE_SIMT_SHADOW

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace headrace::host::simt {

// `shared_`: atomics, load_shared_cache, store_shared_cache. An atomic update is a shared_write.
enum class Access : std::uint8_t { read, write, shared_read, shared_write, constant };

// What a launch did to a byte: the launch in the upper half, below it one CTA, and in the last
// byte what this CTA and others did. One CTA is enough, as long as there is no error: where it
// writes, it is the only one but for shared accesses; where it reads, the others only read too.
// Among several it is the one with the strongest access of: write, shared write, read, shared read.
using Cell = std::uint64_t;

enum CellFlag : Cell {
  kRead = 1,
  kReadByOthers = 2,
  kWritten = 4,  // others cannot have
  kSharedWritten = 8,
  kSharedWrittenByOthers = 16,
  kSharedRead = 32,
  kSharedReadByOthers = 64,
  kConstant = 128,  // by any CTA
};
inline constexpr unsigned kCtaShift = 8, kLaunchShift = 32;
inline constexpr Cell kFlags = (Cell{1} << kCtaShift) - 1;
// CTAs whose numbers are equal in these bits are not told apart.
inline constexpr Cell kCtas = (Cell{1} << (kLaunchShift - kCtaShift)) - 1;

// The launch and CTA as they lie in a cell.
constexpr Cell owner(std::uint32_t launch, unsigned cta) {
  return Cell{launch} << kLaunchShift | (cta & kCtas) << kCtaShift;
}

// By Access, but constant: the flag where the cell's CTA does it, and where others do.
inline constexpr Cell kFlagOf[] = {kRead, kWritten, kSharedRead, kSharedWritten};
inline constexpr Cell kFlagOfOthers[] = {
    kReadByOthers, 0, kSharedReadByOthers, kSharedWrittenByOthers};

// Whether cells without an error have the access noted: `differing` is what any of them differs in
// from `owner`, `common` what all have. What others do as well, the cell's own CTA need not be
// noted for: whatever that meets, it meets the others too.
constexpr bool are_noted(Cell differing, Cell common, Access access) {
  if (access == Access::constant) {
    constexpr Cell kWrites = kWritten | kSharedWritten | kSharedWrittenByOthers;
    return differing >> kLaunchShift == 0 && common & kConstant && !(differing & kWrites);
  }
  const auto kind = static_cast<unsigned>(access);
  if (differing >> kCtaShift == 0 && common & kFlagOf[kind]) return true;
  return differing >> kLaunchShift == 0 && common & kFlagOfOthers[kind];
}

// The cell with the access, and what the access meets that it must not meet; null when it may be.
struct Noted {
  Cell cell;
  const char* conflict;
};
Noted noted(Cell cell, Cell owner, Access access);

// The cells of 64 KiB of memory.
struct ShadowPage {
  static constexpr unsigned kBits = 16;
  static constexpr std::uintptr_t kMask = (std::uintptr_t{1} << kBits) - 1;
  std::atomic<Cell> cells[kMask + 1];
  // Where in the program the access was that the cell was last changed by, for the error.
  std::atomic<std::uint32_t> places[kMask + 1];
};

// Of the calling thread: the page of each of the last ones used. A page stays for good.
struct LastPage {
  std::uintptr_t number;  // 0: none, since nothing is mapped there
  ShadowPage* page;
};
inline constexpr std::size_t kLastPages = 64;
extern thread_local constinit LastPage last_pages[kLastPages];

class Shadow {
 public:
  explicit Shadow(const char* kernel);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  // Of this launch.
  std::uint32_t number() const { return number_; }
  // Notes an access; `pc`: where in the program. Any thread.
  void note(std::uintptr_t at, std::size_t nbytes, Cell owner, Access access, const void* pc);
  // Throws `device` with the first conflict.
  void check() const;

 private:
  struct State;

  void report(std::uintptr_t at,
              Cell before,
              std::uint32_t place_before,
              Cell owner,
              Access access,
              std::uint32_t place,
              const char* conflict);

  std::uint32_t number_;
  std::unique_ptr<State> state_;
};

// What the calling thread runs: no shadow outside of kernels.
struct Watched {
  Shadow* shadow = nullptr;
  Cell owner = 0;
  const void* stack = nullptr;  // of the fiber
  std::size_t stack_nbytes = 0;
  const void* shared = nullptr;
  std::size_t shared_nbytes = 0;
};
extern thread_local constinit Watched watched;

// Until its end, what the calling fiber does is the simulator's and not the kernel's.
class Unwatched {
 public:
  Unwatched() : shadow_(watched.shadow) { watched.shadow = nullptr; }
  ~Unwatched() { watched.shadow = shadow_; }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;

 private:
  Shadow* shadow_;
};

// In place, where the compiler knows size and access: what is noted already costs least.
[[gnu::always_inline]] inline void note(const void* data,
                                        std::size_t nbytes,
                                        Access access,
                                        const void* pc) {
  const Watched& self = watched;
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  if (!self.shadow || at - reinterpret_cast<std::uintptr_t>(self.stack) < self.stack_nbytes ||
      at - reinterpret_cast<std::uintptr_t>(self.shared) < self.shared_nbytes)
    return;
  const LastPage& last = last_pages[at >> ShadowPage::kBits & (kLastPages - 1)];
  const std::uintptr_t first = at & ShadowPage::kMask;
  if (last.number == at >> ShadowPage::kBits && first + nbytes <= ShadowPage::kMask + 1) {
    const std::atomic<Cell>* const cells = last.page->cells + first;
    Cell differing = 0, common = ~Cell{0};
    for (std::size_t i = 0; i < nbytes; ++i) {
      const Cell cell = cells[i].load(std::memory_order_relaxed);
      differing |= cell ^ self.owner;
      common &= cell;
    }
    if (are_noted(differing, common, access)) return;
  }
  self.shadow->note(at, nbytes, self.owner, access, pc);
}

}  // namespace headrace::host::simt

#endif
