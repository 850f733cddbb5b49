#include "simt/shadow.h"

#ifdef HEADRACE_SIMT_SHADOW

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <string>

#include "base/mutex.h"
#include "headrace/error.h"
#include "simt/simt.h"

namespace headrace::host::simt {

thread_local constinit Watched watched{};
thread_local constinit LastPage last_pages[kLastPages]{};

namespace {

// Zeroed memory that stays for good, and costs as much of the machine's as is touched.
template <class T>
T* map_zeroed() {
  void* memory = ::mmap(nullptr,
                        sizeof(T),
                        PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                        -1,
                        0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<T*>(memory);
}

// The pages of the lower half of the address space, by two levels: 2^15 times 2^16 of 2^16 bytes.
struct PageTable {
  std::atomic<ShadowPage*> pages[1 << 16];
};
constexpr std::uintptr_t kTables = std::uintptr_t{1} << 15;
constinit std::atomic<PageTable*> tables[kTables]{};

// The object, made by the first thread that asks.
template <class T>
T& made(std::atomic<T*>& place) {
  T* object = place.load(std::memory_order_acquire);
  if (object) return *object;
  T* fresh = map_zeroed<T>();
  if (place.compare_exchange_strong(object, fresh, std::memory_order_acq_rel)) return *fresh;
  ::munmap(fresh, sizeof(T));
  return *object;
}

ShadowPage& page_of(std::uintptr_t number) {
  LastPage& last = last_pages[number & (kLastPages - 1)];
  if (last.number != number) {
    std::atomic<PageTable*>& table = tables[number >> 16 & (kTables - 1)];
    last = {number, &made(made(table).pages[number & 0xffff])};
  }
  return *last.page;
}

const char* name_of(Access access) {
  constexpr const char* kNames[] = {
      "reads", "writes", "reads (shared)", "writes (shared)", "reads as constant"};
  return kNames[static_cast<unsigned>(access)];
}

std::uint32_t offset_in_program(const void* pc) {
  Dl_info info{};
  if (!dladdr(pc, &info)) return 0;
  return static_cast<std::uint32_t>(static_cast<const char*>(pc) -
                                    static_cast<const char*>(info.dli_fbase));
}
// The program's begin, once: dladdr at every change would take most of the time.
std::uint32_t place_of(const void* pc) {
  static const auto* const begin = static_cast<const char*>(pc) - offset_in_program(pc);
  return static_cast<std::uint32_t>(static_cast<const char*>(pc) - begin);
}

}  // namespace

Noted noted(Cell cell, Cell owner, Access access) {
  if (cell >> kLaunchShift != owner >> kLaunchShift) cell = owner & ~kFlags;
  const bool same = ((cell ^ owner) & ~kFlags) == 0;
  constexpr Cell kShared = kSharedWritten | kSharedWrittenByOthers;
  // What others than `owner` did. Which of the others no longer matters: any of them is another.
  const Cell others_shared_writes = cell & (same ? Cell{kSharedWrittenByOthers} : kShared);
  const Cell others_reads = cell & (same ? Cell{kReadByOthers} : Cell{kRead | kReadByOthers});
  const Cell others_shared_reads =
      cell & (same ? Cell{kSharedReadByOthers} : Cell{kSharedRead | kSharedReadByOthers});
  const bool plain = access == Access::read || access == Access::write;
  const bool writes = access == Access::write || access == Access::shared_write;
  const char* conflict = nullptr;
  if (access == Access::constant && cell & (kWritten | kShared))
    conflict = "that this launch writes";
  else if (!same && cell & kWritten)
    conflict = "that another CTA writes";
  else if (plain && others_shared_writes)
    conflict = "that another CTA writes (shared)";
  else if (writes && cell & kConstant)
    conflict = "that this launch reads as constant";
  else if (writes && others_reads)
    conflict = "that another CTA reads";
  else if (access == Access::write && others_shared_reads)
    conflict = "that another CTA reads (shared)";
  if (access == Access::constant) return {cell | kConstant, conflict};

  const auto kind = static_cast<unsigned>(access);
  if (same) return {cell | kFlagOf[kind], conflict};
  // The CTA with the strongest access has the cell.
  constexpr Cell kFromStrongest[] = {kWritten, kSharedWritten, kRead, kSharedRead};
  for (const Cell flag : kFromStrongest) {
    if (cell & flag) return {cell | kFlagOfOthers[kind], conflict};
    if (flag == kFlagOf[kind]) break;
  }
  constexpr Cell kKept = kConstant | kReadByOthers | kSharedReadByOthers | kSharedWrittenByOthers;
  Cell taken = (owner & ~kFlags) | (cell & kKept) | kFlagOf[kind];
  if (cell & kRead) taken |= kReadByOthers;
  if (cell & kSharedRead) taken |= kSharedReadByOthers;
  if (cell & kSharedWritten) taken |= kSharedWrittenByOthers;
  return {taken, conflict};
}

struct Shadow::State {
  std::string kernel;
  Mutex mutex;
  std::string error GUARDED_BY(mutex);
};

Shadow::Shadow(const char* kernel) : state_(std::make_unique<State>()) {
  static std::atomic<std::uint32_t> launches{0};
  number_ = ++launches;  // none is 0, what an untouched cell holds
  state_->kernel = kernel;
}
Shadow::~Shadow() = default;

void Shadow::note(
    std::uintptr_t at, std::size_t nbytes, Cell owner, Access access, const void* pc) {
  const Unwatched unwatched;  // what notes is no kernel, wherever its own calls are compiled
  const std::uint32_t place = place_of(pc);
  for (const std::uintptr_t end = at + nbytes; at < end;) {
    ShadowPage& page = page_of(at >> ShadowPage::kBits);
    const std::uintptr_t page_end = std::min(end, (at | ShadowPage::kMask) + 1);
    for (; at < page_end; ++at) {
      std::atomic<Cell>& cell = page.cells[at & ShadowPage::kMask];
      std::atomic<std::uint32_t>& place_before = page.places[at & ShadowPage::kMask];
      Cell before = cell.load(std::memory_order_relaxed);
      Noted now;
      do {
        now = noted(before, owner, access);
      } while (now.cell != before &&
               !cell.compare_exchange_weak(before, now.cell, std::memory_order_relaxed));
      if (now.conflict) {
        report(at,
               before,
               place_before.load(std::memory_order_relaxed),
               owner,
               access,
               place,
               now.conflict);
      } else {
        place_before.store(place, std::memory_order_relaxed);
      }
    }
  }
}

void Shadow::report(std::uintptr_t at,
                    Cell before,
                    std::uint32_t place_before,
                    Cell owner,
                    Access access,
                    std::uint32_t place,
                    const char* conflict) {
  const MutexLock lock(state_->mutex);
  if (!state_->error.empty()) return;
  const auto cta_of = [](Cell of) { return static_cast<unsigned>(of >> kCtaShift & kCtas); };
  char text[256];
  std::snprintf(text,
                sizeof(text),
                "CTA %u %s a byte (%p) %s, at +0x%x (it was last noted at +0x%x; CTA %u has it)",
                cta_of(owner),
                name_of(access),
                reinterpret_cast<const void*>(at),
                conflict,
                place,
                place_before,
                cta_of(before));
  state_->error = text;
}

void Shadow::check() const {
  const MutexLock lock(state_->mutex);
  if (!state_->error.empty())
    throw Error(ErrorCode::device, "simt: " + state_->kernel + ": " + state_->error);
}

void note_constant(const void* p, std::size_t nbytes) {
  note(p, nbytes, Access::constant, __builtin_return_address(0));
}

}  // namespace headrace::host::simt

#endif
