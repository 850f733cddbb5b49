#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>

#include "base/thread_pool.h"
#include "engine/layout/array_layout.h"
#include "headrace/array.h"
#include "headrace/config.h"

namespace headrace {

class ArrayState;

// Calls what a caller gave to be called now and then, by the thread that this was made on.
class Poll {
 public:
  explicit Poll(const std::function<void()>& poll);

  bool is_caller() const { return std::this_thread::get_id() == caller_; }
  // When it is due; on other threads nothing happens.
  void check();

 private:
  const std::function<void()>& poll_;
  const std::thread::id caller_;
  std::chrono::steady_clock::time_point next_;  // of the caller's thread
};

// One read or write as its caller asked for it, of whatever array: what it may use, and when it has
// to end. All its threads share it.
class Request {
 public:
  // `options` must outlive it.
  // `attempt`: of the same read, from 1 on.
  Request(const ReadOptions& options, const std::atomic<bool>* cancel, int attempt = 1);

  // As it was when the request began.
  const Config& config() const { return *config_; }
  // Bytes of scratch.
  std::size_t memory_budget() const { return memory_budget_; }
  // That the budget has room for, each with a chunk of that layout.
  int threads_for(const ArrayLayout& layout) const;

  // Of a store across a network: requests under way at a time, and the bytes that come of them.
  std::size_t io_depth() const { return config_->io_depth; }
  std::size_t io_nbytes() const { return io_nbytes_; }
  // Whether what is kept of a shard may be taken for true until the store says that the shard was
  // replaced. Once it did, nothing is: it may be so for others, too.
  bool trusts_kept_indices() const { return attempt_ == 1; }

  // `cancelled` when the request was; calls the caller's poll on the caller's thread when due. Once
  // that has thrown, the request is cancelled for its other threads.
  void check();
  // parallel_for whose waiting thread checks, too.
  template <typename Body>
  void parallel(std::size_t n, Body&& body, int max_threads) {
    parallel_for(n, body, max_threads, [this] { check(); });
  }
  // Of a chunk that was fetched.
  void count_encoded(std::uint64_t nbytes);

  // An object of this array was not found: a missing chunk, or all of the array is gone. A request
  // has one array, but across a network.
  void note_missing(const ArrayState& array) {
    if (missing_.load(std::memory_order_relaxed) != &array)
      missing_.store(&array, std::memory_order_relaxed);
  }
  // At its end: `not_found` where an object was missing and the array was removed since it was
  // opened (its folder, or the disk that it was on). Of files: elsewhere it would take a trip.
  void check_array_is_there() const;

 private:
  const std::shared_ptr<const Config> config_;
  const std::size_t memory_budget_;
  const std::size_t io_nbytes_;
  const int attempt_;
  Poll poll_;
  const std::atomic<bool>* cancel_;
  std::atomic<bool> stop_{false};
  std::atomic<const ArrayState*> missing_{nullptr};
  std::atomic<std::uint64_t>* const encoded_nbytes_;
};

}  // namespace headrace
