#pragma once

// What waits look at so that their caller can end them: headrace/interrupt.h.

#include <functional>

#include "base/mutex.h"
#include "headrace/interrupt.h"

namespace headrace {

// Of this thread's innermost scope; null: nobody is to be asked. Called without a lock. Helpers of
// parallel_for have one that throws `cancelled` when their caller has an error.
const std::function<void()>* current_interrupt();

// A part of a wait whose caller loops over its condition: true when it is time to call what
// current_interrupt() gives. That is a while after this thread was last told so, not after this
// wait began: waits one after another, each of which is shorter, are one long wait for who wants
// them no more.
bool wait_or_interrupt(ConditionVariable& changed, Mutex& mutex) REQUIRES(mutex);

}  // namespace headrace
