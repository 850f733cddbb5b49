#pragma once

// What the requests of one client have in common: how many are on the wire, and how long answers
// take. Any thread.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

#include "base/mutex.h"
#include "store/http/network.h"

namespace headrace {

class ClientLoad {
 public:
  explicit ClientLoad(int max_in_flight) : max_in_flight_(max_in_flight) {}

  // Of a request that is to go out: its turn, among those of all reactors.
  std::uint64_t begin_waiting() {
    const MutexLock lock(mutex_);
    waiting_.insert(next_turn_);
    return next_turn_++;
  }
  // Of one that ended before it went out.
  void end_waiting(std::uint64_t turn) {
    const MutexLock lock(mutex_);
    waiting_.erase(turn);
  }
  // It may go out; false: too many have, or one of another reactor has waited for too long. A
  // reactor prefers its own, which it need not wake anybody for, but not for ever.
  bool take(std::uint64_t turn) {
    const MutexLock lock(mutex_);
    const auto ahead = turn - *waiting_.begin();
    if (in_flight_ >= max_in_flight_ || ahead > static_cast<std::uint64_t>(max_in_flight_)) {
      return false;
    }
    waiting_.erase(turn);
    ++in_flight_;
    return true;
  }
  void release() {
    const MutexLock lock(mutex_);
    --in_flight_;
  }
  // Whether one of those that wait may go out.
  bool has_turn() const {
    const MutexLock lock(mutex_);
    return in_flight_ < max_in_flight_ && !waiting_.empty();
  }

  // Second tries are a tenth of the requests at most.
  bool take_hedge() {
    int now = hedges_.load();
    while (now < std::max(1, max_in_flight_ / 10)) {
      if (hedges_.compare_exchange_weak(now, now + 1)) return true;
    }
    return false;
  }
  void release_hedge() { hedges_.fetch_sub(1); }

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
  std::atomic<int> hedges_{0};
  mutable Mutex mutex_;
  int in_flight_ GUARDED_BY(mutex_) = 0;
  std::uint64_t next_turn_ GUARDED_BY(mutex_) = 0;
  std::set<std::uint64_t> waiting_ GUARDED_BY(mutex_);
  std::array<std::chrono::steady_clock::duration, 128> latencies_ GUARDED_BY(mutex_){};
  std::size_t noted_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
