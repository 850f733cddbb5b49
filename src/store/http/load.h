#pragma once

// What the requests of one client have in common: how many are on the wire, and how long answers
// take. Any thread.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>

#include "base/mutex.h"
#include "store/http/network.h"

namespace headrace {

class ClientLoad {
 public:
  explicit ClientLoad(int max_in_flight) : max_in_flight_(max_in_flight) {}

  // One more may go out; false: too many have.
  bool take() {
    int now = in_flight_.load();
    while (now < max_in_flight_) {
      if (in_flight_.compare_exchange_weak(now, now + 1)) return true;
    }
    return false;
  }
  void release() { in_flight_.fetch_sub(1); }

  // Second tries are a tenth of the requests at most.
  bool take_hedge() {
    int now = hedges_.load();
    while (now < std::max(1, max_in_flight_ / 10)) {
      if (hedges_.compare_exchange_weak(now, now + 1)) return true;
    }
    return false;
  }
  void release_hedge() { hedges_.fetch_sub(1); }

  void begin_waiting() { waiting_.fetch_add(1); }
  void end_waiting() { waiting_.fetch_sub(1); }
  bool has_waiting() const { return waiting_.load() > 0; }

  // From the start of an attempt to the end of the headers.
  void note_latency(std::chrono::steady_clock::duration latency) {
    const MutexLock lock(mutex_);
    latencies_[noted_++ % latencies_.size()] = latency;
  }
  // What 95 of 100 took less than; nothing until there are enough of them.
  std::optional<std::chrono::steady_clock::duration> slow() const {
    const MutexLock lock(mutex_);
    const std::size_t count = std::min(noted_, latencies_.size());
    if (count < kFew) return std::nullopt;
    auto sorted = latencies_;
    const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(count * 95 / 100);
    std::nth_element(sorted.begin(), at, sorted.begin() + static_cast<std::ptrdiff_t>(count));
    return *at;
  }

  // Whether the server ever answered: one that never did is no server.
  std::atomic<bool> answered{false};

 private:
  static constexpr std::size_t kFew = 20;

  const int max_in_flight_;
  std::atomic<int> in_flight_{0};
  std::atomic<int> hedges_{0};
  std::atomic<int> waiting_{0};
  mutable Mutex mutex_;
  std::array<std::chrono::steady_clock::duration, 128> latencies_ GUARDED_BY(mutex_){};
  std::size_t noted_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
