#include "shm/waiting.h"

#include <algorithm>

#include "shm/futex.h"

namespace headrace::shm {

namespace {
constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(100);
}

bool Waiting::sleep(std::atomic<std::uint32_t>& event,
                    std::atomic<std::uint32_t>& waiters,
                    std::uint32_t seen) {
  std::chrono::nanoseconds time = kSlice;
  if (wait_.timeout) time = std::min(time, *wait_.timeout - (Clock::now() - begin_));
  if (time <= std::chrono::nanoseconds(0)) return false;
  waiters.fetch_add(1);
  const bool woken = futex_wait(event, seen, time);
  waiters.fetch_sub(1);  // a waiter that is killed stays counted: that costs a call, no more
  if (!woken && wait_.interrupt) wait_.interrupt();
  return true;
}

void announce(std::atomic<std::uint32_t>& event,
              const std::atomic<std::uint32_t>& waiters,
              int count) {
  event.fetch_add(1);
  if (waiters.load() != 0) futex_wake(event, count);
}

}  // namespace headrace::shm
