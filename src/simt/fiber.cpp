#include "simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/detail/fcontext.hpp>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEADRACE_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define HEADRACE_ASAN 1
#endif
#ifdef HEADRACE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__) && !defined(HEADRACE_UNTRACED_CALLS)
#error "ThreadSanitizer's stack of calls does not stand fibers: build with HEADRACE_SANITIZE=thread"
#endif

namespace headrace {
namespace {

namespace fcontext = boost::context::detail;

// Frames are larger under sanitizers. Only pages that are used cost memory.
#if defined(HEADRACE_ASAN) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = 256 * 1024;
#else
constexpr std::size_t kStackBytes = 64 * 1024;
#endif

// With an inaccessible page below; not under ThreadSanitizer, which splits its own memory where
// that of a program is split: both together are more mappings than a process may have.
class Stack {
 public:
  Stack() : guard_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    memory_ = ::mmap(nullptr,
                     guard_ + kStackBytes,
                     PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1,
                     0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
#ifndef __SANITIZE_THREAD__
    if (::mprotect(memory_, guard_, PROT_NONE) != 0) {
      ::munmap(memory_, guard_ + kStackBytes);
      throw std::bad_alloc();
    }
#endif
  }
  ~Stack() {
    forget_frames();
    ::munmap(memory_, guard_ + kStackBytes);
  }
  Stack(const Stack&) = delete;

  // What AddressSanitizer noted of frames that will not return: it would hold for whoever gets
  // these addresses next.
  void forget_frames() {
#ifdef HEADRACE_ASAN
    __asan_unpoison_memory_region(bottom(), kStackBytes);
#endif
  }

  char* bottom() const { return static_cast<char*>(memory_) + guard_; }
  char* top() const { return bottom() + kStackBytes; }

 private:
  std::size_t guard_;
  void* memory_;
};

}  // namespace

struct FiberSet::Fiber {
  Stack stack;
  fcontext::fcontext_t context = nullptr;  // null: starts at the next resume
  bool finished = false;
  [[maybe_unused]] void* fake_stack = nullptr;
};

struct FiberSet::Scheduler {
  fcontext::fcontext_t context = nullptr;
  [[maybe_unused]] const void* stack_bottom = nullptr;
  [[maybe_unused]] std::size_t stack_size = 0;
};

// What runs first on a fiber's stack.
struct FiberEntry {
  static void enter(fcontext::transfer_t from) {
    FiberSet& set = *static_cast<FiberSet*>(from.data);
    set.scheduler_->context = from.fctx;
#ifdef HEADRACE_ASAN
    __sanitizer_finish_switch_fiber(
        nullptr, &set.scheduler_->stack_bottom, &set.scheduler_->stack_size);
#endif
    for (;;) {
      set.body_(set.context_);
      set.fibers_[set.current_]->finished = true;
      set.suspend();
    }
  }
};

FiberSet::FiberSet(Body body, void* context)
    : body_(body), context_(context), scheduler_(std::make_unique<Scheduler>()) {}

FiberSet::~FiberSet() = default;

void FiberSet::reserve(unsigned count) {
  while (fibers_.size() < count) fibers_.push_back(std::make_unique<Fiber>());
}

bool FiberSet::resume(unsigned index) {
  Fiber& fiber = *fibers_[index];
  if (!fiber.context)
    fiber.context = fcontext::make_fcontext(fiber.stack.top(), kStackBytes, FiberEntry::enter);
  current_ = index;
  fiber.finished = false;
#ifdef HEADRACE_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, fiber.stack.bottom(), kStackBytes);
#endif
  fiber.context = fcontext::jump_fcontext(fiber.context, this).fctx;
#ifdef HEADRACE_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  return fiber.finished;
}

void FiberSet::suspend() {
#ifdef HEADRACE_ASAN
  Fiber& fiber = *fibers_[current_];
  __sanitizer_start_switch_fiber(
      &fiber.fake_stack, scheduler_->stack_bottom, scheduler_->stack_size);
#endif
  scheduler_->context = fcontext::jump_fcontext(scheduler_->context, nullptr).fctx;
#ifdef HEADRACE_ASAN
  __sanitizer_finish_switch_fiber(
      fiber.fake_stack, &scheduler_->stack_bottom, &scheduler_->stack_size);
#endif
}

std::span<const char> FiberSet::stack(unsigned index) const {
  return {fibers_[index]->stack.bottom(), kStackBytes};
}

void FiberSet::abandon() {
  for (auto& fiber : fibers_) {
    fiber->context = nullptr;
    fiber->stack.forget_frames();
  }
}

}  // namespace headrace
