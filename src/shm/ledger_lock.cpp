// The lock of an arena, which outlives the death of its holder (tests/models/lock.pml).

#include <algorithm>
#include <new>

#include "shm/futex.h"
#include "shm/ledger.h"

namespace headrace::shm {

namespace {

using namespace std::chrono_literals;

// How long a thread waits for the lock before it asks whether its holder is alive.
constexpr std::chrono::nanoseconds kLockPatience = 20ms;

bool is_free(std::uint32_t word) { return (word & lock_word::kHolder) == 0; }

}  // namespace

Ledger::Lock::Lock(const Ledger& ledger, std::uint32_t process, LockWait& wait)
    : ledger_(ledger), is_taken_(take(process, wait)) {
  if (is_taken_) crash_point();
}

Ledger::Lock::Lock(const Ledger& ledger, std::uint32_t process, std::chrono::nanoseconds patience)
    : ledger_(ledger), is_taken_(false) {
  LockWait wait(ledger);
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!(is_taken_ = take(process, wait))) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= 0ns) return;
    wait.sleep(left);
  }
  crash_point();
}

bool Ledger::Lock::take(std::uint32_t process, LockWait& wait) const {
  std::atomic<std::uint32_t>& word = ledger_.header_->lock;
  // Whoever has slept leaves the mark for others that may still do.
  const std::uint32_t mark = wait.has_slept_ ? lock_word::kWaiters : 0;
  constexpr int kSpins = 100;
  std::uint32_t seen = 0;
  for (int i = 0; i < kSpins; ++i) {
    seen = word.load(std::memory_order_relaxed);
    if (is_free(seen) &&
        word.compare_exchange_weak(
            seen, lock_word::taken(seen, process, mark), std::memory_order_acquire)) {
      wait.was_woken_ = false;
      return true;
    }
  }
  // From one that is dead, but not from one who took it from the dead meanwhile.
  if (is_free(seen) || seen != wait.suspect_) return false;
  if (!ledger_.is_dead((seen & lock_word::kHolder) - 1)) return false;
  if (!word.compare_exchange_strong(
          seen,
          lock_word::taken(seen & ~lock_word::kWaiters, process, lock_word::kWaiters),
          std::memory_order_acquire)) {
    return false;
  }
  wait.was_woken_ = false;
  try {
    ledger_.rebuild();
  } catch (const std::bad_alloc&) {  // it is marked as untidy: the lock's next user tries again
  }
  return true;
}

Ledger::Lock::~Lock() {
  if (!is_taken_) return;
  crash_point();
  std::atomic<std::uint32_t>& word = ledger_.header_->lock;
  const std::uint32_t before =
      word.fetch_and(~(lock_word::kHolder | lock_word::kWaiters), std::memory_order_release);
  if (before & lock_word::kWaiters) {
    crash_point();
    futex_wake(word, 1);
  }
}

void Ledger::LockWait::sleep(std::chrono::nanoseconds at_most) {
  std::atomic<std::uint32_t>& word = ledger_.header_->lock;
  std::uint32_t seen = word.load(std::memory_order_relaxed);
  suspect_ = 0;
  if (is_free(seen)) return;
  if ((seen & lock_word::kWaiters) == 0 &&
      !word.compare_exchange_strong(seen, seen | lock_word::kWaiters, std::memory_order_relaxed)) {
    return;
  }
  seen |= lock_word::kWaiters;
  has_slept_ = true;
  was_woken_ = futex_wait(word, seen, std::min(at_most, kLockPatience));
  if (!was_woken_) suspect_ = seen;
}

Ledger::LockWait::~LockWait() {
  if (was_woken_) futex_wake(ledger_.header_->lock, 1);
}

std::uint32_t Ledger::lock_holding() const {
  const std::uint32_t word = header_->lock.load(std::memory_order_relaxed);
  return is_free(word) ? 0 : word & ~lock_word::kWaiters;
}

}  // namespace headrace::shm
