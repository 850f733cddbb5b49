#include "engine/fetch/objects.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "engine/fetch/plan.h"

namespace headrace {
namespace {

struct Batch {
  std::size_t first = 0;
  std::vector<GetRequest> requests;
  std::vector<Buffer> buffers;  // of the requests; kept for the next ones
  std::size_t next = 0;         // request to be used
  std::size_t left = 0;         // requests that are not used up
};

class Fetch {
 public:
  Fetch(StoreDriver& driver,
        const ObjectBatches& batches,
        FunctionRef<std::string(std::size_t)> key_of,
        FunctionRef<void(std::size_t, const GetRequest&)> use,
        FunctionRef<void()> check)
      : driver_(driver), plan_(batches), key_of_(key_of), use_(use), check_(check) {
    // One thread alone gains nothing by what lies ready.
    const std::size_t n = batches.threads > 1 ? kFetchedBatches : 1;
    for (std::size_t i = 0; i < n; ++i) free_.push_back(&batches_[i]);
  }

  // Several threads do this until nothing is left.
  void work() {
    const MutexLock lock(mutex_);
    try {
      while (step()) {
      }
    } catch (...) {
      failed_ = true;
      changed_.notify_all();
      throw;
    }
  }

 private:
  bool step() REQUIRES(mutex_) {
    if (failed_) return false;
    if (!fetching_ && first_ < plan_.objects && !free_.empty()) {
      fetch_next();
    } else if (!ready_.empty()) {
      use_next();
    } else if (fetching_ || first_ < plan_.objects) {
      changed_.wait_for(mutex_, std::chrono::milliseconds(50));
      const MutexUnlock free(mutex_);
      check_();
    } else {
      return false;
    }
    return true;
  }

  void fetch_next() REQUIRES(mutex_) {
    Batch& batch = *free_.back();
    free_.pop_back();
    fetching_ = true;
    batch.first = first_;
    first_ += std::min(plan_.batch, plan_.objects - first_);
    batch.left = first_ - batch.first;
    {
      const MutexUnlock free(mutex_);
      fetch(batch);
    }
    fetching_ = false;
    ready_.push_back(&batch);
    changed_.notify_all();
  }

  // Of a batch that nobody else has.
  void fetch(Batch& batch) const {
    check_();
    batch.next = 0;
    batch.buffers.resize(std::max(batch.buffers.size(), batch.left));
    batch.requests.clear();
    for (std::size_t i = 0; i < batch.left; ++i) {
      batch.requests.push_back(
          {key_of_(batch.first + i), &batch.buffers[i], false, nullptr, plan_.max_nbytes});
    }
    driver_.get_many(batch.requests);
  }

  void use_next() REQUIRES(mutex_) {
    Batch& batch = *ready_.front();
    const std::size_t i = batch.next++;
    if (batch.next == batch.requests.size()) ready_.pop_front();
    {
      const MutexUnlock free(mutex_);
      check_();
      use_(batch.first + i, batch.requests[i]);
    }
    if (--batch.left > 0) return;
    free_.push_back(&batch);
    changed_.notify_all();
  }

  StoreDriver& driver_;
  const ObjectBatches& plan_;
  const FunctionRef<std::string(std::size_t)> key_of_;
  const FunctionRef<void(std::size_t, const GetRequest&)> use_;
  const FunctionRef<void()> check_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::array<Batch, kFetchedBatches> batches_;  // of who has taken them from the queues
  std::vector<Batch*> free_ GUARDED_BY(mutex_);
  std::deque<Batch*> ready_ GUARDED_BY(mutex_);
  std::size_t first_ GUARDED_BY(mutex_) = 0;  // object that nobody has asked for
  bool fetching_ GUARDED_BY(mutex_) = false;
  bool failed_ GUARDED_BY(mutex_) = false;
};

}  // namespace

void fetch_objects(StoreDriver& driver,
                   const ObjectBatches& batches,
                   FunctionRef<std::string(std::size_t)> key_of,
                   FunctionRef<void(std::size_t, const GetRequest&)> use,
                   FunctionRef<void()> check) {
  Fetch fetch(driver, batches, key_of, use, check);
  parallel_for(
      static_cast<std::size_t>(batches.threads),
      [&](std::size_t) { fetch.work(); },
      batches.threads,
      check);
}

}  // namespace headrace
