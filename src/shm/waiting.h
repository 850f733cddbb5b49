#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

#include "headrace/shm.h"

namespace headrace::shm {

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

 private:
  Wait wait_;
  Clock::time_point begin_ = Clock::now();
};

// After a change that at most `count` of the waiting can use.
void announce(std::atomic<std::uint32_t>& event,
              const std::atomic<std::uint32_t>& waiters,
              int count);

}  // namespace headrace::shm
