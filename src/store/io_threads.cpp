#include "store/io_threads.h"

#include <chrono>
#include <deque>
#include <utility>

#include "base/mutex.h"
#include "base/start_thread.h"

namespace headrace {
namespace {

constexpr std::chrono::seconds kIdle(5);

}  // namespace

struct IoThreads::State {
  Mutex mutex;
  ConditionVariable changed;
  std::deque<std::function<void()>> jobs GUARDED_BY(mutex);
  std::size_t threads GUARDED_BY(mutex) = 0;
  std::size_t idle GUARDED_BY(mutex) = 0;
  bool ends GUARDED_BY(mutex) = false;
};

IoThreads::Shared::Shared() : state(std::make_shared<State>()) {}

IoThreads::~IoThreads() {
  const std::shared_ptr<State> state = shared_.get().state;
  const MutexLock lock(state->mutex);
  state->ends = true;
  state->changed.notify_all();
}

void IoThreads::run(std::function<void()> job) {
  const std::shared_ptr<State> state = shared_.get().state;
  const MutexLock lock(state->mutex);
  state->jobs.push_back(std::move(job));
  if (state->jobs.size() <= state->idle) {
    state->changed.notify_one();
    return;
  }
  if (state->threads == most_) return;
  ++state->threads;
  try {
    // Detached: who destroys this may be one of them.
    start_thread([state] { work(*state); }).detach();
  } catch (...) {
    if (--state->threads > 0) return;
    state->jobs.pop_back();
    throw;
  }
}

void IoThreads::work(State& state) {
  const MutexLock lock(state.mutex);
  for (;;) {
    if (!state.jobs.empty()) {
      std::function<void()> job = std::move(state.jobs.front());
      state.jobs.pop_front();
      const MutexUnlock free(state.mutex);
      job();
      job = nullptr;
    } else if (state.ends) {
      break;
    } else {
      ++state.idle;
      const bool in_time = state.changed.wait_for(state.mutex, kIdle);
      --state.idle;
      if (!in_time && state.jobs.empty()) break;
    }
  }
  --state.threads;
}

}  // namespace headrace
