#pragma once

#include <chrono>

#include "base/fork_mutex.h"
#include "headrace/loader.h"

namespace headrace::loader {

// Statistics that several threads add to.
class StatsBoard {
 public:
  template <typename Change>
  void update(Change change) {
    const ForkLock lock(mutex_);
    change(stats_);
  }
  Stats get() const {
    const ForkLock lock(mutex_);
    return stats_;
  }

 private:
  mutable ForkMutex mutex_;
  Stats stats_ GUARDED_BY(mutex_);
};

// Adds the time that it lives to a statistic.
class StageTimer {
 public:
  StageTimer(StatsBoard& board, double Stats::*seconds) : board_(board), seconds_(seconds) {}
  ~StageTimer() {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    board_.update([&](Stats& stats) { stats.*seconds_ += passed.count(); });
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  StatsBoard& board_;
  double Stats::*const seconds_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace headrace::loader
