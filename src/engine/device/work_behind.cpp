#include "engine/device/work_behind.h"

#include <chrono>
#include <utility>

namespace headrace {
namespace {

constexpr auto kCheckEvery = std::chrono::milliseconds(50);

// Another thread has the error that the work ends with.
struct OtherFailed {};

}  // namespace

void WorkBehind::run(std::size_t threads, FunctionRef<void()> make) {
  // The first index is handed out first: nobody waits for work that no thread has begun to make.
  request_.parallel(
      threads, [&](std::size_t i) { follow(i == 0, make); }, static_cast<int>(threads));
}

void WorkBehind::follow(bool makes, FunctionRef<void()> make) {
  const MutexLock lock(mutex_);
  if (!makes) ++others_;
  try {
    if (makes) {
      {
        const MutexUnlock free(mutex_);
        make();
      }
      made_ = true;
      added_.notify_all();
    }
    while (!failed_) {
      if (do_next()) continue;
      if (made_) break;
      wait_and_check(added_);
    }
  } catch (const OtherFailed&) {
  } catch (...) {
    failed_ = true;
    added_.notify_all();
    done_.notify_all();
    throw;
  }
}

void WorkBehind::add(std::unique_ptr<Task> task, std::size_t nbytes) {
  const MutexLock lock(mutex_);
  waiting_.push_back({std::move(task), nbytes});
  held_nbytes_ += nbytes;
  added_.notify_one();
  throw_if_failed();
  while (held_nbytes_ > most_nbytes_) {
    // A large task keeps this thread from making more, for which others may then wait.
    if (waiting_.size() <= others_ || !do_next()) wait_and_check(done_);
    throw_if_failed();
  }
}

void WorkBehind::drain() {
  const MutexLock lock(mutex_);
  throw_if_failed();
  while (!waiting_.empty() || under_way_ > 0) {
    if (!do_next()) wait_and_check(done_);
    throw_if_failed();
  }
}

// False: nothing waits. What a task throws ends all, so that it stays under way is of no account.
bool WorkBehind::do_next() {
  if (waiting_.empty()) return false;
  Waiting next = std::move(waiting_.front());
  waiting_.pop_front();
  ++under_way_;
  {
    const MutexUnlock free(mutex_);
    next.task->run();
    next.task.reset();
  }
  --under_way_;
  held_nbytes_ -= next.nbytes;
  done_.notify_one();
  return true;
}

void WorkBehind::throw_if_failed() {
  if (failed_) throw OtherFailed();
}

void WorkBehind::wait_and_check(ConditionVariable& change) {
  change.wait_for(mutex_, kCheckEvery);
  const MutexUnlock free(mutex_);
  request_.check();
}

}  // namespace headrace
