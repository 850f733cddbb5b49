#include "engine/fetch/in_flight.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "headrace/error.h"

namespace headrace {
namespace {

constexpr auto kCheckInterval = std::chrono::milliseconds(50);

}  // namespace

ReadsInFlight::ReadsInFlight(AsyncReads& store, const Limits& limits, FunctionRef<void()> check)
    : store_(store), limits_(limits), check_(check) {}

ReadsInFlight::~ReadsInFlight() {
  const MutexLock lock(mutex_);
  if (is_under_way()) fail();
}

void ReadsInFlight::add(std::unique_ptr<Source> source) {
  const MutexLock lock(mutex_);
  sources_.push_back(std::move(source));
  changed_.notify_one();
}

void ReadsInFlight::work() {
  const MutexLock lock(mutex_);
  try {
    while (step()) {
    }
  } catch (...) {
    if (const std::exception_ptr heard = fail()) std::rethrow_exception(heard);
    throw;
  }
}

bool ReadsInFlight::step() {
  if (failed_) return false;
  if (!submits_ && has_room()) {
    submit_more();
  } else if (!answers_.empty()) {
    use_next();
  } else if (is_under_way()) {
    wait_and_check();
  } else {
    changed_.notify_all();
    return false;
  }
  return true;
}

bool ReadsInFlight::has_room() const {
  if (submitting_.size() + in_flight_.size() >= limits_.reads) return false;
  // So many wait for threads: what is asked for now would wait longer.
  if (answers_.size() >= limits_.reads || (next_.empty() && sources_.empty())) return false;
  const std::uint64_t more = next_.empty() ? 1 : next_.front()->held_nbytes;
  return held_nbytes_ == 0 || held_nbytes_ + more <= limits_.nbytes;
}

bool ReadsInFlight::is_under_way() const {
  return submits_ || users_ > 0 || !next_.empty() || !sources_.empty() || !submitting_.empty() ||
         !in_flight_.empty() || !answers_.empty();
}

// To next_, from the last source that has something. Without the lock meanwhile: a source may wait
// for memory. False when there is none.
bool ReadsInFlight::pull() {
  while (!sources_.empty()) {
    const auto last = std::prev(sources_.end());
    Reads one;
    {
      const MutexUnlock free(mutex_);
      std::unique_ptr<Read> read = (*last)->next();
      if (read) one.push_back(std::move(read));
    }
    if (!one.empty()) {
      Read& read = *one.front();
      read.flight_ = this;
      read.place_ = one.begin();
      read.store_ = (*last)->store == nullptr ? &store_ : (*last)->store;
      next_.splice(next_.end(), one);
      return true;
    }
    const std::unique_ptr<Source> done = std::move(*last);
    sources_.erase(last);
  }
  return false;
}

// As many as there is room for, by one call of each store.
void ReadsInFlight::submit_more() {
  submits_ = true;
  std::vector<std::pair<AsyncReads*, std::vector<AsyncRead*>>> batches;
  try {
    while (!failed_ && has_room()) {
      if (next_.empty() && !pull()) break;
      Read& read = *next_.front();
      if (read.ready) {
        held_nbytes_ += read.held_nbytes;
        answers_.splice(answers_.end(), next_);
        changed_.notify_one();
      } else if (has_room()) {
        auto batch = std::find_if(batches.begin(), batches.end(), [&](const auto& other) {
          return other.first == read.store_;
        });
        if (batch == batches.end()) batch = batches.insert(batch, {read.store_, {}});
        batch->second.push_back(&read);
        held_nbytes_ += read.held_nbytes;
        submitting_.splice(submitting_.end(), next_);
      }
    }
  } catch (...) {
    // What the store has not seen goes with the flight.
    submitting_.clear();
    submits_ = false;
    throw;
  }
  if (!batches.empty() && !failed_) {
    {
      const MutexUnlock free(mutex_);
      for (const auto& [store, batch] : batches) store->submit(batch);
    }
    for (const std::unique_ptr<Read>& read : submitting_) read->submitted_ = true;
    in_flight_.splice(in_flight_.end(), submitting_);
  } else {
    submitting_.clear();
  }
  submits_ = false;
  if (!failed_) return;
  cancel_all();
  changed_.notify_all();
}

// By a thread of the store's. Told under the lock: who waits for the last one may destroy this.
void ReadsInFlight::answered(Read& read) noexcept {
  const MutexLock lock(mutex_);
  if (read.into.empty() && !read.error) {
    held_nbytes_ = held_nbytes_ - read.held_nbytes + read.bytes.size();
    read.held_nbytes = read.bytes.size();
  }
  answers_.splice(answers_.end(), read.submitted_ ? in_flight_ : submitting_, read.place_);
  if (failed_) {
    changed_.notify_all();
  } else {
    changed_.notify_one();
  }
}

void ReadsInFlight::use_next() {
  Read& read = *answers_.front();
  if (read.parts_ == 0) read.parts_ = read.parts();
  const std::size_t part = read.next_part_++;
  if (read.next_part_ == read.parts_) {
    in_use_.splice(in_use_.end(), answers_, read.place_);
  } else {
    changed_.notify_one();
  }
  ++users_;
  try {
    const MutexUnlock free(mutex_);
    check_();
    read.use(part);
  } catch (...) {
    --users_;
    throw;
  }
  --users_;
  if (++read.used_parts_ < read.parts_) return;
  held_nbytes_ -= read.held_nbytes;
  Reads used;
  used.splice(used.end(), in_use_, read.place_);
  const MutexUnlock free(mutex_);
  used.clear();
}

void ReadsInFlight::wait_and_check() {
  changed_.wait_for(mutex_, kCheckInterval);
  const MutexUnlock free(mutex_);
  check_();
}

// Returns when the store has nothing any more, with what the check threw meanwhile that is no error
// of ours: a signal of the caller's, of which nobody would hear again. Another error may be one
// that is tried again.
std::exception_ptr ReadsInFlight::fail() noexcept {
  std::exception_ptr heard;
  failed_ = true;
  changed_.notify_all();
  cancel_all();
  while (submits_ || !in_flight_.empty()) {
    changed_.wait_for(mutex_, kCheckInterval);
    const MutexUnlock free(mutex_);
    try {
      check_();
    } catch (const Error&) {
      // The one that ends the read is on its way already.
    } catch (...) {
      // The store that is waited for may be stuck, and the next signal's handler may be what ends
      // it.
      if (!heard) heard = std::current_exception();
    }
  }
  return heard;
}

// Those of submit() are cancelled by who submits them, as soon as it has.
void ReadsInFlight::cancel_all() noexcept {
  while (!in_flight_.empty() && !in_flight_.front()->cancelled_) {
    Read& read = *in_flight_.front();
    read.cancelled_ = true;
    in_flight_.splice(in_flight_.end(), in_flight_, read.place_);
    const MutexUnlock free(mutex_);
    read.store_->cancel(read);
  }
}

}  // namespace headrace
