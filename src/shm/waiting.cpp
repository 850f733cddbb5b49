#include "shm/waiting.h"

#include <algorithm>
#include <thread>

#include "shm/futex.h"

namespace headrace::shm {

std::chrono::nanoseconds lock_grace = std::chrono::milliseconds(500);

namespace {
constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(100);
// Waking a thread on a processor that sleeps takes 50 us and more in virtual machines: an answer
// that comes sooner is waited for awake.
constexpr std::chrono::nanoseconds kSpin = std::chrono::microseconds(50);
}  // namespace

// Once a call. True: the event has come.
bool Waiting::spin(const std::atomic<std::uint32_t>& event, std::uint32_t seen) {
  if (std::exchange(has_spun_, true)) return false;
  const Clock::time_point end = Clock::now() + kSpin;
  while (Clock::now() < end) {
    if (event.load(std::memory_order_relaxed) != seen) return true;
    std::this_thread::yield();  // to whoever is to answer and waits for this processor
  }
  return false;
}

bool Waiting::sleep(std::atomic<std::uint32_t>& event,
                    std::atomic<std::uint32_t>& waiters,
                    std::uint32_t seen) {
  if (lock_only_) return false;
  std::chrono::nanoseconds time = kSlice;
  if (wait_.timeout) time = std::min(time, *wait_.timeout - (Clock::now() - begin_));
  if (time <= std::chrono::nanoseconds(0)) return false;
  if (spin(event, seen)) return true;
  waiters.fetch_add(1);
  const bool woken = futex_wait(event, seen, time);
  waiters.fetch_sub(1);  // a waiter that is killed stays counted: that costs a call, no more
  if (!woken && wait_.interrupt) wait_.interrupt();
  return true;
}

std::optional<std::chrono::nanoseconds> Waiting::lock_slice() {
  const Clock::time_point now = Clock::now();
  std::chrono::nanoseconds slice = kSlice;
  if (wait_.timeout) slice = std::min(slice, std::max(*wait_.timeout, lock_grace) - (now - begin_));
  if (slice <= std::chrono::nanoseconds(0)) return std::nullopt;
  if (wait_.interrupt && now - interrupted_ >= kSlice) {
    wait_.interrupt();
    interrupted_ = now;
  }
  return slice;
}

void announce(std::atomic<std::uint32_t>& event,
              const std::atomic<std::uint32_t>& waiters,
              int count) {
  event.fetch_add(1);
  if (waiters.load() != 0) futex_wake(event, count);
}

}  // namespace headrace::shm
