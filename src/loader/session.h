#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "loader/batch_maker.h"

namespace headrace::loader {

// The batches of one epoch from a position on, made ahead by a thread, or, without `prefetch`, by
// who asks for them. Of one process: a child of fork never touches it.
class Session {
 public:
  Session(std::shared_ptr<const Plan> plan, StatsBoard& board);
  ~Session();

  // Batches of the epoch from `position` on come next; what was made and not taken is lost.
  void begin(std::shared_ptr<const Order> order, const Position& position);
  // Nothing at the end of the epoch. After an error the same batch comes next.
  std::optional<Batch> next(const std::function<void()>& poll);

 private:
  void serve();
  bool has_work() const REQUIRES(mutex_);
  void work(const std::function<void()>& poll = {}) REQUIRES(mutex_);
  void stop_work() REQUIRES(mutex_);

  const std::shared_ptr<const Plan> plan_;
  StatsBoard& board_;
  std::atomic<bool> stop_{false};  // what is being read
  BatchMaker maker_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Batch> made_ GUARDED_BY(mutex_);
  std::exception_ptr error_ GUARDED_BY(mutex_);
  std::int64_t to_make_ GUARDED_BY(mutex_) = 0;  // position
  std::int64_t left_ GUARDED_BY(mutex_) = 0;     // batches
  // Batches from to_make_ on whose chunks are resident, and whether there is no room for more.
  std::int64_t to_read_ GUARDED_BY(mutex_) = 0;
  bool no_room_ GUARDED_BY(mutex_) = false;
  bool busy_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;

  std::thread thread_;  // the last member: it uses all others
};

}  // namespace headrace::loader
