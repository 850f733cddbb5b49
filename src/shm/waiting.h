#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "headrace/shm.h"

namespace headrace::shm {

// Whoever has an arena's lock keeps it for microseconds unless it is stopped or loses its
// processor: a call waits for the lock for so long whatever its timeout. Tests shorten it.
extern std::chrono::nanoseconds lock_grace;

// One call's wait, in slices: after each the caller looks again, for what it waits for and for
// deaths, which wake nobody.
class Waiting {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Waiting(Wait wait) : wait_(std::move(wait)) {}

  // Sleeps while `event` is `seen`. False: the time of the call is over.
  bool sleep(std::atomic<std::uint32_t>& event,
             std::atomic<std::uint32_t>& waiters,
             std::uint32_t seen);

  // From now on for the lock alone: sleep() says that the time is over.
  void want_lock_only() { lock_only_ = true; }

  // How long the call may sleep for the arena's lock before it asks again. Nothing: its time is
  // over.
  std::optional<std::chrono::nanoseconds> lock_slice();

 private:
  bool spin(const std::atomic<std::uint32_t>& event, std::uint32_t seen);

  Wait wait_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point interrupted_ = begin_;
  bool has_spun_ = false;
  bool lock_only_ = false;
};

// After a change that at most `count` of the waiting can use.
void announce(std::atomic<std::uint32_t>& event,
              const std::atomic<std::uint32_t>& waiters,
              int count);

}  // namespace headrace::shm
