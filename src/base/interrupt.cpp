#include "base/interrupt.h"

#include <utility>

namespace headrace {
namespace {

thread_local const std::function<void()>* t_interrupt = nullptr;

}  // namespace

InterruptScope::InterruptScope(std::function<void()> poll) noexcept
    : poll_(std::move(poll)), outer_(std::exchange(t_interrupt, poll_ ? &poll_ : nullptr)) {}

InterruptScope::~InterruptScope() { t_interrupt = outer_; }

const std::function<void()>* current_interrupt() { return t_interrupt; }

}  // namespace headrace
