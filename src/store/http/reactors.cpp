#include "store/http/reactors.h"

#include <curl/curl.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>

#include "base/fork_mutex.h"
#include "base/per_process.h"
#include "headrace/error.h"

namespace headrace {

namespace {

// So many requests keep a reactor busy: fewer stay together, where connections are kept.
constexpr std::size_t kFew = 16;
// What is on its way when the process ends has been told so by then.
constexpr std::chrono::milliseconds kPatience(2000);

class Reactors {
 public:
  std::size_t choose() const {
    std::size_t best = 0;
    std::size_t least = SIZE_MAX;
    for (std::size_t i = 0; i < kReactors; ++i) {
      const Reactor* reactor = running_[i].load(std::memory_order_acquire);
      const std::size_t count = reactor == nullptr ? 0 : reactor->count();
      const std::size_t cost = count < kFew ? 0 : count;
      if (cost < least) {
        least = cost;
        best = i;
      }
    }
    return best;
  }

  // Null: there is none any more.
  Reactor* started(std::size_t i) {
    if (Reactor* reactor = running_[i].load(std::memory_order_acquire)) return reactor;
    const MutexLock lock(mutex_);
    if (stopped_) return nullptr;
    if (!reactors_[i]) {
      prepare_library();
      reactors_[i] = Reactor::start([this](const Reactor* but) { wake_others(but); });
      running_[i].store(reactors_[i].get(), std::memory_order_release);
    }
    return reactors_[i].get();
  }

  Reactor* running(std::size_t i) const { return running_[i].load(std::memory_order_acquire); }

  void stop() {
    std::array<std::shared_ptr<Reactor>, kReactors> reactors;
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
      reactors = reactors_;
    }
    for (const auto& reactor : reactors) {
      if (reactor) reactor->stop(kPatience);
    }
  }

  // Between these no reactor is inside libcurl, OpenSSL or malloc, and none is being started.
  void hold() NO_THREAD_SAFETY_ANALYSIS {
    mutex_.lock();
    for (const auto& reactor : reactors_) {
      if (reactor) reactor->hold();
    }
  }
  void let_go() NO_THREAD_SAFETY_ANALYSIS {
    for (const auto& reactor : reactors_) {
      if (reactor) reactor->let_go();
    }
    mutex_.unlock();
  }

 private:
  void wake_others(const Reactor* but) {
    for (const auto& each : running_) {
      Reactor* const reactor = each.load(std::memory_order_acquire);
      if (reactor != nullptr && reactor != but) reactor->wake();
    }
  }

  static void prepare_library() {
    if (curl_global_init(CURL_GLOBAL_ALL) != CURLE_OK) {
      throw Error(ErrorCode::io, "libcurl cannot be initialised");
    }
    // After OpenSSL's own, which that has registered: what comes last is called first.
    static std::atomic<bool> registered{false};
    if (!registered.exchange(true)) std::atexit(stop_at_exit);
  }

  static void stop_at_exit();

  Mutex mutex_;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::array<std::shared_ptr<Reactor>, kReactors> reactors_ GUARDED_BY(mutex_);
  std::array<std::atomic<Reactor*>, kReactors> running_{};  // the same, as they are there
};

Reactors* g_held = nullptr;  // by the thread that forks

PerProcess<Reactors>& all_reactors() {
  static auto* all = [] {
    auto* made = new PerProcess<Reactors>;  // never destroyed: threads may outlive statics
    // Behind the handlers of pools and ForkMutexes: what is registered last is called first, and
    // reactors take those locks while they are at work.
    const ForkMutex behind;
    pthread_atfork(
        [] {
          Reactors& held = all_reactors().get();
          held.hold();
          g_held = &held;
        },
        [] { g_held->let_go(); },
        [] { g_held->let_go(); });
    return made;
  }();
  return *all;
}

void Reactors::stop_at_exit() { all_reactors().get().stop(); }

}  // namespace

std::size_t choose_reactor() { return all_reactors().get().choose(); }

bool start_transfer(std::size_t reactor, std::unique_ptr<Transfer>& transfer) {
  Reactor* const started = all_reactors().get().started(reactor);
  return started != nullptr && started->add(transfer);
}

void cancel_transfer(std::size_t reactor, std::uint64_t number) {
  if (Reactor* running = all_reactors().get().running(reactor)) running->cancel(number);
}

}  // namespace headrace
