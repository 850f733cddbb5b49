#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "base/interrupt.h"
#include "base/mutex.h"
#include "base/per_process.h"

namespace headrace {

// Something that ends and is then fetched anew: credentials. Before it ends one thread fetches the
// next while the others use what there is; only where there is none (any more) do all wait, and
// what one of them could not fetch the others do not try again. A child of fork fetches its own.
template <class T>
class Renewed {
 public:
  using Time = std::chrono::system_clock::time_point;
  struct Fetched {
    std::shared_ptr<const T> value;
    Time end = Time::max();
  };

  explicit Renewed(std::function<Fetched()> fetch) : fetch_(std::move(fetch)) {}

  // May wait; throws what the fetch throws, unless what there is still holds.
  std::shared_ptr<const T> get() {
    State& state = state_.get();
    MutexLock lock(state.mutex);
    for (;;) {
      const Time now = std::chrono::system_clock::now();
      const bool holds = state.value != nullptr && now < state.end;
      if (holds && (now < state.renew_at || state.fetching)) return state.value;
      if (!state.fetching) break;
      const std::uint64_t failures = state.failures;
      while (state.fetching) {
        if (!wait_or_interrupt(state.fetched, state.mutex)) continue;
        const MutexUnlock free(state.mutex);
        (*current_interrupt())();
      }
      if (state.failures != failures) std::rethrow_exception(state.failed);
    }
    state.fetching = true;
    lock.unlock();
    Fetched fetched;
    std::exception_ptr failed;
    std::exception_ptr unwanted;
    try {
      const auto* const outer = current_interrupt();
      const InterruptScope scope(outer == nullptr ? std::function<void()>() : [&unwanted, outer] {
        try {
          (*outer)();
        } catch (...) {
          unwanted = std::current_exception();
          throw;
        }
      });
      fetched = fetch_();
    } catch (...) {
      failed = std::current_exception();
    }
    lock.lock();
    state.fetching = false;
    state.fetched.notify_all();
    const Time now = std::chrono::system_clock::now();
    // By its caller, which says nothing to others: one of them fetches.
    if (unwanted) std::rethrow_exception(unwanted);
    if (failed) {
      if (state.value == nullptr || now >= state.end) {
        ++state.failures;
        state.failed = failed;
        std::rethrow_exception(failed);
      }
      state.renew_at = now + kRetry;
      return state.value;
    }
    if (state.value == nullptr || !(*state.value == *fetched.value)) ++state.number;
    state.value = std::move(fetched.value);
    state.end = fetched.end;
    // Of what holds for less than the margin, at half of its time.
    state.renew_at = fetched.end == Time::max()
                         ? Time::max()
                         : std::max(fetched.end - kMargin, now + (fetched.end - now) / 2);
    return state.value;
  }

  // A server takes what get() gave for ended: the next get() fetches, whatever was said of its end.
  void doubt() {
    State& state = state_.get();
    const MutexLock lock(state.mutex);
    state.end = std::min(state.end, std::chrono::system_clock::now());
  }

  // The same, unless others were fetched since number() was this.
  void doubt(std::uint64_t number) {
    State& state = state_.get();
    const MutexLock lock(state.mutex);
    if (state.number <= number) state.end = std::min(state.end, std::chrono::system_clock::now());
  }

  // Rises when get() has fetched others than before.
  std::uint64_t number() {
    State& state = state_.get();
    const MutexLock lock(state.mutex);
    return state.number;
  }

  // What get() gave last, without a wait; null: nothing was fetched by this process.
  std::shared_ptr<const T> latest() {
    State& state = state_.get();
    const MutexLock lock(state.mutex);
    return state.value;
  }

 private:
  // AWS's libraries renew five minutes before the end, and its metadata service has new ones then.
  static constexpr std::chrono::minutes kMargin{5};
  static constexpr std::chrono::seconds kRetry{30};

  struct State {
    Mutex mutex;
    ConditionVariable fetched;
    bool fetching GUARDED_BY(mutex) = false;
    std::shared_ptr<const T> value GUARDED_BY(mutex);
    Time end GUARDED_BY(mutex){};
    Time renew_at GUARDED_BY(mutex){};
    std::uint64_t number GUARDED_BY(mutex) = 0;
    // Those that left nothing that holds, and the last one's error.
    std::uint64_t failures GUARDED_BY(mutex) = 0;
    std::exception_ptr failed GUARDED_BY(mutex);
  };

  const std::function<Fetched()> fetch_;
  PerProcess<State> state_;
};

}  // namespace headrace
