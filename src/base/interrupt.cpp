#include "base/interrupt.h"

#include <chrono>
#include <utility>

namespace headrace {
namespace {

thread_local const std::function<void()>* t_interrupt = nullptr;
thread_local std::chrono::steady_clock::time_point t_last_told{};

constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

InterruptScope::InterruptScope(std::function<void()> poll) noexcept
    : poll_(std::move(poll)), outer_(std::exchange(t_interrupt, poll_ ? &poll_ : nullptr)) {}

InterruptScope::~InterruptScope() { t_interrupt = outer_; }

const std::function<void()>* current_interrupt() { return t_interrupt; }

bool wait_or_interrupt(ConditionVariable& changed, Mutex& mutex) {
  if (t_interrupt == nullptr) {
    changed.wait(mutex);
    return false;
  }
  if (changed.wait_until(mutex, t_last_told + kInterval)) return false;
  t_last_told = std::chrono::steady_clock::now();
  return true;
}

}  // namespace headrace
