#pragma once

// What waits look at so that their caller can end them: headrace/interrupt.h.

#include <chrono>
#include <functional>

#include "headrace/interrupt.h"

namespace headrace {

// How often.
inline constexpr std::chrono::milliseconds kInterruptInterval{100};

// Of this thread's innermost scope; null: nobody is to be asked. Called without a lock. Helpers of
// parallel_for have one that throws `cancelled` when their caller has an error.
const std::function<void()>* current_interrupt();

// Whether so long has passed since this thread was last told that it has, as the first time: waits
// one after another, each of which is shorter, are one long wait for who wants them no more.
bool is_interrupt_due();

}  // namespace headrace
