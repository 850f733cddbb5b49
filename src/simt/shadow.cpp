#include "simt/shadow.h"

#ifdef HEADRACE_SIMT_SHADOW

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "headrace/error.h"
#include "simt/simt.h"

namespace headrace::host::simt {

thread_local constinit Watched watched{};

namespace {

constexpr unsigned kPageBits = 10;
constexpr std::uint32_t kMany = ~std::uint32_t{0};

// Blocks as number + 1; 0: none.
struct Cell {
  std::uint32_t writer, reader, shared_writer, shared_reader;
  std::uint32_t written_at;  // of the plain write, from the program's begin
  bool constant;
};

bool is_other(std::uint32_t who, std::uint32_t block) { return who != 0 && who != block; }
void join(std::uint32_t& who, std::uint32_t block) { who = is_other(who, block) ? kMany : block; }

const char* name_of(Access access) {
  constexpr const char* kNames[] = {
      "reads", "writes", "reads (shared)", "writes (shared)", "reads as constant"};
  return kNames[static_cast<unsigned>(access)];
}

// What `access` by `block` meets that it must not meet; null when it may be.
const char* conflict(const Cell& cell, Access access, std::uint32_t block) {
  const bool constant = access == Access::constant;
  const bool plain = access == Access::read || access == Access::write;
  const bool writes = access == Access::write || access == Access::shared_write;
  if (constant && (cell.writer || cell.shared_writer)) return "that this launch writes";
  if (is_other(cell.writer, block)) return "that another block writes";
  if (plain && is_other(cell.shared_writer, block)) return "that another block writes (shared)";
  if (!writes) return nullptr;
  if (cell.constant) return "that this launch reads as constant";
  if (is_other(cell.reader, block)) return "that another block reads";
  if (plain && is_other(cell.shared_reader, block)) return "that another block reads (shared)";
  return nullptr;
}

std::uint32_t offset_in_program(const void* pc) {
  Dl_info info{};
  if (!dladdr(pc, &info)) return 0;
  return static_cast<std::uint32_t>(static_cast<const char*>(pc) -
                                    static_cast<const char*>(info.dli_fbase));
}
// The program's begin, once: dladdr at every write would take most of the time.
std::uint32_t place_of(const void* pc) {
  static const auto* const begin = static_cast<const char*>(pc) - offset_in_program(pc);
  return static_cast<std::uint32_t>(static_cast<const char*>(pc) - begin);
}

// Of the calling thread: what its block has noted already need not be noted again: tables and
// states are touched many times.
bool is_known(
    std::uint64_t launch, unsigned block, const void* data, std::size_t nbytes, Access access) {
  struct Noted {
    std::uint64_t launch;
    const void* data;
    unsigned block;
    unsigned how;
  };
  constexpr std::size_t kNoted = 4096;
  static thread_local constinit std::array<Noted, kNoted> noted{};
  const unsigned how = static_cast<unsigned>(nbytes) << 3 | static_cast<unsigned>(access);
  const auto hash = (reinterpret_cast<std::uintptr_t>(data) * 8 + how) * 0x9e3779b97f4a7c15u;
  Noted& last = noted[hash >> 52];
  if (last.launch == launch && last.data == data && last.block == block && last.how == how)
    return true;
  last = {launch, data, block, how};
  return false;
}

bool is_in(const void* p, const void* begin, std::size_t nbytes) {
  return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(begin) < nbytes;
}

}  // namespace

struct Shadow::Page {
  Mutex mutex;
  std::array<Cell, 1 << kPageBits> cells GUARDED_BY(mutex){};
};

struct Shadow::State {
  std::string kernel;
  Mutex mutex;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages GUARDED_BY(mutex);
  std::string error GUARDED_BY(mutex);
  std::uint64_t number;
};

Shadow::Shadow(const char* kernel) : state_(std::make_unique<State>()) {
  static std::atomic<std::uint64_t> launches{0};
  state_->kernel = kernel;
  state_->number = ++launches;
}
Shadow::~Shadow() = default;

Shadow::Page& Shadow::page_of(std::uintptr_t number) {
  struct Last {
    std::uint64_t launch;
    std::uintptr_t number;
    Page* page;
  };
  constexpr std::size_t kLasts = 64;
  static thread_local constinit std::array<Last, kLasts> lasts{};
  Last& last = lasts[number % kLasts];
  if (last.launch == state_->number && last.number == number) return *last.page;
  const MutexLock lock(state_->mutex);
  std::unique_ptr<Page>& page = state_->pages[number];
  if (!page) page = std::make_unique<Page>();
  last = {state_->number, number, page.get()};
  return *page;
}

void Shadow::note(
    unsigned block, const void* data, std::size_t nbytes, Access access, const void* pc) {
  if (is_known(state_->number, block, data, nbytes, access)) return;
  const std::uint32_t self = block + 1;
  auto at = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t end = at + nbytes;
  while (at < end) {
    Page& page = page_of(at >> kPageBits);
    const MutexLock lock(page.mutex);
    const std::uintptr_t page_end = ((at >> kPageBits) + 1) << kPageBits;
    for (; at < end && at < page_end; ++at) {
      Cell& cell = page.cells[at & ((1u << kPageBits) - 1)];
      if (const char* met = conflict(cell, access, self)) {
        const MutexLock error_lock(state_->mutex);
        if (state_->error.empty()) {
          char text[256];
          std::snprintf(text,
                        sizeof(text),
                        "block %u %s a byte (%p) %s, at +0x%x (the last plain write of it by block "
                        "%lld at +0x%x)",
                        block,
                        name_of(access),
                        reinterpret_cast<const void*>(at),
                        met,
                        place_of(pc),
                        static_cast<long long>(cell.writer) - 1,
                        cell.written_at);
          state_->error = text;
        }
      }
      switch (access) {
        case Access::read:
          join(cell.reader, self);
          break;
        case Access::write:
          join(cell.writer, self);
          cell.written_at = place_of(pc);
          break;
        case Access::shared_read:
          join(cell.shared_reader, self);
          break;
        case Access::shared_write:
          join(cell.shared_writer, self);
          break;
        case Access::constant:
          cell.constant = true;
          break;
      }
    }
  }
}

void Shadow::check() const {
  const MutexLock lock(state_->mutex);
  if (!state_->error.empty())
    throw Error(ErrorCode::device, "simt: " + state_->kernel + ": " + state_->error);
}

void note(const void* data, std::size_t nbytes, Access access, const void* pc) {
  const Watched self = watched;
  if (!self.shadow || is_in(data, self.stack, self.stack_nbytes) ||
      is_in(data, self.shared, self.shared_nbytes))
    return;
  watched.shadow = nullptr;  // what notes is no kernel, wherever its own calls are compiled
  self.shadow->note(self.block, data, nbytes, access, pc);
  watched.shadow = self.shadow;
}

void note_constant(const void* p, std::size_t nbytes) {
  note(p, nbytes, Access::constant, __builtin_return_address(0));
}

}  // namespace headrace::host::simt

#endif
