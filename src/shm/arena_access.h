#pragma once

// How an ArenaState's own files get at it, and what it hands out.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

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
class ArenaState::Access {
 public:
  // Of a call: nothing (false) when its time runs out.
  Access(ArenaState& state, Waiting& waiting) : state_(state) {
    take([&] { return waiting.lock_slice(); });
  }
  // Of a destructor, which nobody waits for for long. Whom one has given up on no other waits for.
  explicit Access(ArenaState& state) : state_(state) {
    constexpr std::chrono::milliseconds kPatience{100};
    const auto end = Waiting::Clock::now() + kPatience;
    take([&]() -> std::optional<std::chrono::nanoseconds> {
      const std::uint32_t holding = state_.ledger_.lock_holding();
      const std::chrono::nanoseconds left = end - Waiting::Clock::now();
      if (holding != 0 && holding == state_.stuck_) return std::nullopt;
      if (left > std::chrono::nanoseconds(0)) return left;
      state_.stuck_ = holding;
      return std::nullopt;
    });
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
  ~Access() {
    processes_.reset();
    if (threads_.owns_lock()) threads_.unlock();
    if (freed_ > 0) state_.announce_room();
  }

  explicit operator bool() const { return processes_.has_value(); }
  const Ledger::Lock& lock() const { return *processes_; }

 private:
  // Sleeps without the mutex, for as long as `next_slice` says.
  template <typename NextSlice>
  void take(NextSlice&& next_slice) {
    Ledger::LockWait wait(state_.ledger_);
    while (true) {
      threads_ = std::unique_lock(state_.mutex_);
      processes_.emplace(state_.ledger_, checked_place(), wait);
      if (*processes_) break;
      processes_.reset();
      threads_.unlock();
      const std::optional<std::chrono::nanoseconds> slice = next_slice();
      if (!slice) return;
      wait.sleep(*slice);
    }
    if (state_.ledger_.is_untidy()) freed_ = state_.ledger_.rebuild();
  }

  std::uint32_t checked_place() const {
    if (state_.place_ != kNone) return state_.place_;
    throw Error(ErrorCode::unsupported, state_.why_no_place_);
  }

  ArenaState& state_;
  std::unique_lock<std::mutex> threads_;
  std::optional<Ledger::Lock> processes_;
  std::size_t freed_ = 0;
};

}  // namespace headrace::shm
