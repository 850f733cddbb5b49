#include "engine/write/in_flight.h"

#include <chrono>

namespace headrace {
namespace {

constexpr auto kCheckInterval = std::chrono::milliseconds(50);

bool is_lost(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    // A server may not know a condition that others of its protocol do.
    return is_forestalled(error) || error.code() == ErrorCode::unsupported;
  } catch (...) {
    return false;
  }
}

}  // namespace

bool is_forestalled(const Error& error) {
  return error.code() == ErrorCode::conflict || is_in_doubt(error);
}

bool writes_in_flight(StoreDriver& driver) {
  return driver.async_reads() != nullptr && driver.async_writes() != nullptr;
}

WritesInFlight::WritesInFlight(AsyncWrites& store, const Limits& limits, FunctionRef<void()> check)
    : store_(store), limits_(limits), check_(check) {}

WritesInFlight::~WritesInFlight() {
  const MutexLock lock(mutex_);
  if (in_flight_.empty()) return;
  failed_ = true;
  cancel_all();
  while (!in_flight_.empty()) {
    changed_.wait_for(mutex_, kCheckInterval);
    const MutexUnlock free(mutex_);
    try {
      check_();
    } catch (...) {
      // What ends the write is on its way already; the caller's signals are heard all the same.
    }
  }
}

bool WritesInFlight::has_room(std::uint64_t nbytes) const {
  const std::size_t objects = rooms_ + in_flight_.size();
  return objects < limits_.writes && (objects < 2 || held_nbytes_ + nbytes <= limits_.nbytes);
}

WritesInFlight::Room WritesInFlight::room(std::uint64_t nbytes) {
  free_stored();
  const MutexLock lock(mutex_);
  while (!failed_ && !has_room(nbytes)) wait_and_check();
  if (failed_) throw_failure();
  ++rooms_;
  held_nbytes_ += nbytes;
  return {*this, nbytes};
}

void WritesInFlight::leave(std::uint64_t nbytes) noexcept {
  const MutexLock lock(mutex_);
  --rooms_;
  held_nbytes_ -= nbytes;
  changed_.notify_all();
}

void WritesInFlight::put(Room room, std::unique_ptr<Write> write) {
  Writes one;
  one.push_back(std::move(write));
  Write& mine = *one.front();
  mine.flight_ = this;
  mine.place_ = one.begin();
  const MutexLock lock(mutex_);
  if (failed_) throw_failure();
  --rooms_;
  held_nbytes_ = held_nbytes_ - room.nbytes_ + mine.held_nbytes;
  room.flight_ = nullptr;
  in_flight_.splice(in_flight_.end(), one);
  if (mine.held_nbytes < room.nbytes_) changed_.notify_all();
  {
    const MutexUnlock free(mutex_);
    AsyncWrite* const asked = &mine;
    store_.submit({&asked, 1});
  }
  mine.submitted_ = true;
  if (mine.done_) settle(mine);
  if (failed_) cancel_all();
}

void WritesInFlight::finish() {
  {
    const MutexLock lock(mutex_);
    while (!in_flight_.empty()) {
      if (failed_) cancel_all();
      wait_and_check();
    }
    if (failed_) throw_failure();
  }
  free_stored();
}

std::vector<std::unique_ptr<WritesInFlight::Write>> WritesInFlight::take_lost() {
  std::vector<std::unique_ptr<Write>> lost;
  const MutexLock lock(mutex_);
  for (std::unique_ptr<Write>& write : lost_) lost.push_back(std::move(write));
  lost_.clear();
  return lost;
}

// Not by the store's threads: memory of a device may be among what is freed.
void WritesInFlight::free_stored() {
  Writes stored;
  const MutexLock lock(mutex_);
  if (failed_) return;
  stored.swap(stored_);
  const MutexUnlock free(mutex_);
  stored.clear();
}

void WritesInFlight::wait_and_check() {
  changed_.wait_for(mutex_, kCheckInterval);
  const MutexUnlock free(mutex_);
  check_();
}

// By a thread of the store's.
void WritesInFlight::finished(Write& write) noexcept {
  write.lock = {};
  const MutexLock lock(mutex_);
  write.done_ = true;
  // Who submits it still has it in hand else.
  if (write.submitted_) settle(write);
}

// Told under the lock: who waits for the last one may destroy this.
void WritesInFlight::settle(Write& write) noexcept {
  held_nbytes_ -= write.held_nbytes;
  const bool lost = write.error && write.may_be_lost && is_lost(write.error);
  if (write.error && !lost) {
    if (failure_ == nullptr && !write.cancelled_) failure_ = &write;
    failed_ = true;
  }
  Writes& into = lost ? lost_ : stored_;
  into.splice(into.end(), in_flight_, write.place_);
  changed_.notify_all();
}

void WritesInFlight::cancel_all() noexcept {
  while (!in_flight_.empty()) {
    Write* next = nullptr;
    for (const std::unique_ptr<Write>& each : in_flight_) {
      if (each->submitted_ && !each->cancelled_) {
        next = each.get();
        break;
      }
    }
    if (next == nullptr) return;
    next->cancelled_ = true;
    const MutexUnlock free(mutex_);
    store_.cancel(*next);
  }
}

void WritesInFlight::throw_failure() {
  if (failure_ == nullptr) throw Error(ErrorCode::cancelled, "the write was cancelled");
  const Write& write = *failure_;
  try {
    std::rethrow_exception(write.error);
  } catch (const Error& failure) {
    throw write.located(failure);
  }
}

}  // namespace headrace
