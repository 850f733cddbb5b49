#include "device/completion.h"

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/per_process.h"
#include "base/start_thread.h"
#include "device/device_work.h"
#include "headrace/error.h"

namespace headrace::detail {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(500);

}  // namespace

Completion& Completion::get() {
  static auto* all = new PerProcess<Completion>;  // never destroyed: the thread may outlive statics
  return all->get();
}

void Completion::add(std::shared_ptr<DeviceWork> work) {
  Work fresh;
  fresh.push_back(std::move(work));
  get().take(fresh);
}

void Completion::take(Work& fresh) {
  const MutexLock lock(mutex_);
  if (!running_ && !stopping_) {
    try {
      thread_ = start_thread([this] { run(); });
    } catch (const std::system_error&) {
      throw Error(ErrorCode::io, "cannot start a thread for work of devices", EAGAIN);
    }
    running_ = true;
    // The driver has registered its own end when it was first used: what comes last is called
    // first, and the thread must not ask a driver that is gone.
    static const int registered = std::atexit([] { get().stop(); });
    static_cast<void>(registered);
  }
  open_.splice(open_.end(), fresh);
  changed_.notify_all();
}

void Completion::wake() noexcept {
  try {
    Completion& all = get();
    const MutexLock lock(all.mutex_);
    all.woken_ = true;
    all.changed_.notify_all();
  } catch (...) {
    // The thread looks by itself.
  }
}

void Completion::run() {
  auto next_look = Clock::now() + kLookInterval;
  const MutexLock lock(mutex_);
  while (!stopping_) {
    if (open_.empty()) {
      changed_.wait(mutex_);
      continue;
    }
    if (!woken_ && Clock::now() < next_look) {
      changed_.wait_until(mutex_, next_look);
      continue;
    }
    woken_ = false;
    const bool everywhere = Clock::now() >= next_look;
    if (everywhere) next_look = Clock::now() + kLookInterval;
    Work work;
    work.swap(open_);
    {
      const MutexUnlock free(mutex_);
      work.remove_if([&](const auto& one) { return one->end(everywhere); });
    }
    open_.splice(open_.begin(), work);
  }
  running_ = false;
  changed_.notify_all();
}

void Completion::stop() {
  const auto deadline = Clock::now() + kPatience;
  std::thread ended;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    if (thread_.get_id() == std::this_thread::get_id()) return;
    while (running_ && changed_.wait_until(mutex_, deadline)) {
    }
    if (running_) return;
    ended = std::move(thread_);
  }
  // The driver gives back what it keeps for the thread behind its last line.
  if (ended.joinable()) ended.join();
}

}  // namespace headrace::detail
