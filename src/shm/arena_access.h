#pragma once

// How an ArenaState's own files get at it, and what it hands out.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "headrace/error.h"
#include "shm/arena_state.h"

namespace headrace::shm {

// Of a call that says nothing else when its time is over.
[[noreturn]] void throw_arena_locked();

// What a Block's owner is.
struct ArenaState::Hold {
  Hold(std::shared_ptr<ArenaState> state, std::uint32_t index)
      : arena(std::move(state)), block(index) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() { arena->let_go(block); }

  std::shared_ptr<ArenaState> arena;
  std::uint32_t block;
};

// Both locks: that of the threads of this process, and that of all processes.
class SCOPED_CAPABILITY ArenaState::Access {
 public:
  // Of a call: as long as it may wait.
  Access(ArenaState& state, Waiting& waiting) EXCLUDES(state.mutex_)
      : state_(state), waiting_(&waiting) {}
  // Of a destructor, which nobody waits for for long. Whom one has given up on no other waits for.
  explicit Access(ArenaState& state) EXCLUDES(state.mutex_) : state_(state) {}
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
  ~Access() RELEASE() {
    processes_.reset();
    if (is_held_) state_.mutex_.unlock();
    if (freed_ > 0) state_.announce_room();
  }

  // Once. False: neither is held, the time is over.
  bool take() TRY_ACQUIRE(true) {
    if (waiting_) return take_within([this] { return waiting_->lock_slice(); });
    constexpr std::chrono::milliseconds kPatience{100};
    const auto end = Waiting::Clock::now() + kPatience;
    return take_within([&]() -> std::optional<std::chrono::nanoseconds> {
      const std::uint32_t holding = state_.ledger_.lock_holding();
      const std::chrono::nanoseconds left = end - Waiting::Clock::now();
      if (holding != 0 && holding == state_.stuck_) return std::nullopt;
      if (left > std::chrono::nanoseconds(0)) return left;
      state_.stuck_ = holding;
      return std::nullopt;
    });
  }

  // Of all processes, when take() has given it.
  const Ledger::Lock& lock() const { return *processes_; }

 private:
  // Sleeps without the mutex, for as long as `next_slice` says.
  template <typename NextSlice>
  bool take_within(NextSlice&& next_slice) TRY_ACQUIRE(true, state_.mutex_) {
    Ledger::LockWait wait(state_.ledger_);
    while (true) {
      state_.mutex_.lock();
      is_held_ = true;
      processes_.emplace(state_.ledger_, checked_place(), wait);
      if (*processes_) break;
      processes_.reset();
      is_held_ = false;
      state_.mutex_.unlock();
      const std::optional<std::chrono::nanoseconds> slice = next_slice();
      if (!slice) return false;
      wait.sleep(*slice);
    }
    if (state_.ledger_.is_untidy()) freed_ = state_.ledger_.rebuild();
    return true;
  }

  std::uint32_t checked_place() const REQUIRES(state_.mutex_) {
    if (state_.place_ != kNone) return state_.place_;
    throw Error(ErrorCode::unsupported, state_.why_no_place_);
  }

  ArenaState& state_;
  Waiting* const waiting_ = nullptr;  // null: of a destructor
  bool is_held_ = false;              // the mutex
  std::optional<Ledger::Lock> processes_;
  std::size_t freed_ = 0;
};

}  // namespace headrace::shm
