#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/key_locks.h"
#include "base/thread_pool.h"
#include "engine/request/array_state.h"
#include "headrace/config.h"

namespace headrace {

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
  std::chrono::steady_clock::time_point next_;
};

// What one read or write carries through its threads.
class RequestContext {
 public:
  RequestContext(const ArrayState& state,
                 std::shared_ptr<const ArrayLayout> layout,
                 const ReadOptions& options,
                 const std::atomic<bool>* cancel);
  // The same request where another layout holds.
  RequestContext(const RequestContext& request, std::shared_ptr<const ArrayLayout> layout);

  const ArrayState& state;
  const std::shared_ptr<const ArrayLayout> layout_owner;
  const ArrayLayout& layout;
  StoreDriver& driver;
  const std::shared_ptr<const Config> config_owner;
  const Config& config;
  const std::size_t memory_budget;  // bytes of scratch
  const int threads;                // that it allows
  VlenArena* arena = nullptr;       // of a read of elements of variable length

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
  // Key of a stored chunk within the store.
  std::string chunk_key(const std::int64_t* coordinates) const;
  // Before the first lock_object() of a write.
  void prepare_locks();
  // Keeps the other threads of this process from replacing a stored object meanwhile.
  KeyLocks::Lock lock_object(std::string_view key) const;
  // Whether a write keeps what an object has behind the edge of the array, which others may have
  // grown since. Who gives the metadata (zarr-python) changes the shape, and forgets it.
  bool keeps_behind_edge() const { return state.shared()->has_document; }
  // "[read] a/b chunk c/0/3" for messages.
  std::string place(const char* action, const std::string& key) const;

 private:
  Poll poll_;
  const std::atomic<bool>* cancel_;
  std::atomic<bool> own_stop_{false};
  std::atomic<bool>* const stop_;  // of the whole request: its outermost context's own
  std::atomic<std::uint64_t>* const encoded_nbytes_;
  std::string array_identity_;  // of a write: that of the array's folder
};

}  // namespace headrace
