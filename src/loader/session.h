#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

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
  bool has_work() const;
  void work(std::unique_lock<std::mutex>& lock, const std::function<void()>& poll = {});
  void stop_work(std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<const Plan> plan_;
  StatsBoard& board_;
  std::atomic<bool> stop_{false};  // what is being read
  BatchMaker maker_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex.
  std::deque<Batch> made_;
  std::exception_ptr error_;
  std::int64_t to_make_ = 0;  // position
  std::int64_t left_ = 0;     // batches
  std::int64_t to_read_ = 0;  // batches from to_make_ on whose chunks are resident
  bool no_room_ = false;      // for more of them
  bool busy_ = false;
  bool closed_ = false;

  std::thread thread_;  // the last member: it uses all others
};

}  // namespace headrace::loader
