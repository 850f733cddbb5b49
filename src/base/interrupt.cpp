#include "base/interrupt.h"

#include <utility>

namespace headrace {
namespace {

thread_local const std::function<void()>* t_interrupt = nullptr;
thread_local std::chrono::steady_clock::time_point t_last_due{};

}  // namespace

InterruptScope::InterruptScope(std::function<void()> poll) noexcept
    : poll_(std::move(poll)), outer_(std::exchange(t_interrupt, poll_ ? &poll_ : nullptr)) {}

InterruptScope::~InterruptScope() { t_interrupt = outer_; }

const std::function<void()>* current_interrupt() { return t_interrupt; }

bool is_interrupt_due() {
  const auto now = std::chrono::steady_clock::now();
  if (now - t_last_due < kInterruptInterval) return false;
  t_last_due = now;
  return true;
}

}  // namespace headrace
