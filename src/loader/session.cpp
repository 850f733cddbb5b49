#include "loader/session.h"

#include <chrono>
#include <utility>

#include "base/start_thread.h"
#include "base/trace.h"

namespace headrace::loader {
namespace {

constexpr std::chrono::milliseconds kPollInterval{50};

}  // namespace

Session::Session(std::shared_ptr<const Plan> plan, StatsBoard& board)
    : plan_(std::move(plan)), board_(board), maker_(plan_, board, stop_) {
  if (plan_->options.prefetch > 0) thread_ = start_thread([this] { serve(); });
}

Session::~Session() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    stop_work();
  }
  changed_.notify_all();
  thread_.join();
}

// Returns when the thread is at rest.
void Session::stop_work() {
  left_ = 0;
  stop_ = true;
  while (busy_) changed_.wait(mutex_);
  stop_ = false;
}

void Session::begin(std::shared_ptr<const Order> order, const Position& position) {
  MutexLock lock(mutex_);
  stop_work();
  made_.clear();
  error_ = nullptr;
  maker_.begin_epoch(std::move(order), position.epoch);
  to_make_ = position.samples;
  left_ = plan_->batches_from(position.samples);
  to_read_ = 0;
  no_room_ = false;
  changed_.notify_all();
}

std::optional<Batch> Session::next(const std::function<void()>& poll) {
  const Span span("wait");
  MutexLock lock(mutex_);
  if (!thread_.joinable()) {
    if (left_ == 0) return std::nullopt;
    work(poll);
  }
  while (made_.empty() && !error_ && (left_ > 0 || busy_)) {
    if (changed_.wait_for(mutex_, kPollInterval) || !poll) continue;
    lock.unlock();
    poll();
    lock.lock();
  }
  if (!made_.empty()) {
    Batch batch = std::move(made_.front());
    made_.pop_front();
    changed_.notify_all();
    return batch;
  }
  if (error_) {  // the next call tries again
    changed_.notify_all();
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  return std::nullopt;
}

void Session::serve() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!closed_ && !has_work()) changed_.wait(mutex_);
    if (closed_) return;
    work();
  }
}

bool Session::has_work() const {
  if (error_ || left_ == 0) return false;
  const bool is_full = static_cast<std::int64_t>(made_.size()) >= plan_->options.prefetch;
  return !is_full || (!no_room_ && to_read_ < left_);
}

// Makes a batch, or reads for the next ones where there are enough.
void Session::work(const std::function<void()>& poll) {
  const std::int64_t prefetch = plan_->options.prefetch, position = to_make_;
  const bool makes = static_cast<std::int64_t>(made_.size()) < std::max<std::int64_t>(prefetch, 1);
  const std::int64_t ahead = position + to_read_ * plan_->global_batch();
  busy_ = true;
  mutex_.unlock();
  std::optional<Batch> batch;
  bool has_room = true;
  std::exception_ptr error;
  try {
    if (makes)
      batch = maker_.make(position, poll);
    else
      has_room = maker_.read_ahead(ahead, position);
  } catch (...) {
    error = std::current_exception();
  }
  mutex_.lock();
  busy_ = false;
  if (error) {
    error_ = error;
  } else if (makes) {
    made_.push_back(std::move(*batch));
    to_make_ += plan_->global_batch();
    --left_;
    to_read_ = std::max<std::int64_t>(to_read_ - 1, 0);
    no_room_ = false;
  } else if (has_room) {
    ++to_read_;
  } else {
    no_room_ = true;
  }
  const auto depth = static_cast<std::int64_t>(made_.size());
  board_.update([&](Stats& stats) { stats.queue_depth = depth; });
  changed_.notify_all();
}

}  // namespace headrace::loader
