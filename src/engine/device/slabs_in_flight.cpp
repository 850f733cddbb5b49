#include "engine/device/slabs_in_flight.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace headrace {
namespace {

constexpr auto kCheckInterval = std::chrono::milliseconds(50);

// Another thread has the error that the read ends with.
struct Ended {};

}  // namespace

void SlabsInFlight::run(std::size_t threads) {
  const std::size_t busy = begin(threads);
  request_.parallel(
      busy, [this](std::size_t) { work(); }, static_cast<int>(busy));
  const MutexLock lock(mutex_);
  while (!open_.empty()) finish_oldest();
}

// Looks for two slabs: a read of one has no use for more threads than that.
std::size_t SlabsInFlight::begin(std::size_t threads) {
  const MutexLock lock(mutex_);
  look_ahead();
  if (!next_) return 0;
  const std::size_t of_first = std::max<std::size_t>(next_->threads(), 1);
  open_next();
  look_ahead();
  return next_ ? threads : std::min(threads, of_first);
}

void SlabsInFlight::check() {
  request_.check();
  if (failed_) throw Ended();
}

void SlabsInFlight::work() {
  const MutexLock lock(mutex_);
  try {
    while (step()) {
    }
  } catch (const Ended&) {
  } catch (...) {
    failed_ = true;
    changed_.notify_all();
    throw;
  }
}

bool SlabsInFlight::step() {
  if (failed_) return false;
  Open* const open = fetchable();
  const bool may_look = !next_ && !all_ && !looking_;
  if (may_look && (looks_ahead_ || !open)) {
    look_ahead();
  } else if (open) {
    fetch(*open);
  } else if (!next_ && all_) {
    return false;
  } else if (next_ && open_.size() < kOpen) {
    open_next();
  } else if (next_ && open_.front().submitted && !finishing_) {
    finish_oldest();
  } else {
    wait_and_check();
  }
  return true;
}

SlabsInFlight::Open* SlabsInFlight::fetchable() {
  const auto found =
      std::find_if(open_.begin(), open_.end(), [](const Open& open) { return !open.handed_out; });
  return found == open_.end() ? nullptr : &*found;
}

void SlabsInFlight::look_ahead() {
  looking_ = true;
  std::unique_ptr<Slab> found;
  {
    const MutexUnlock free(mutex_);
    found = source_.next();
  }
  looking_ = false;
  all_ = !found;
  next_ = std::move(found);
  changed_.notify_all();
}

void SlabsInFlight::open_next() {
  open_.push_back({std::move(next_)});
  changed_.notify_all();
}

void SlabsInFlight::fetch(Open& open) {
  ++open.inside;
  {
    const MutexUnlock free(mutex_);
    open.slab->fetch();
  }
  open.handed_out = true;
  if (--open.inside > 0 || failed_) return;
  {
    const MutexUnlock free(mutex_);
    open.slab->submit();
  }
  open.submitted = true;
  changed_.notify_all();
}

void SlabsInFlight::finish_oldest() {
  finishing_ = true;
  std::unique_ptr<Slab> slab = std::move(open_.front().slab);
  {
    const MutexUnlock free(mutex_);
    slab->finish();
    slab.reset();
  }
  open_.pop_front();
  finishing_ = false;
  changed_.notify_all();
}

void SlabsInFlight::wait_and_check() {
  changed_.wait_for(mutex_, kCheckInterval);
  const MutexUnlock free(mutex_);
  check();
}

}  // namespace headrace
