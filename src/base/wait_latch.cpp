#include "base/wait_latch.h"

#include <exception>

#include "base/interrupt.h"

namespace headrace {

void WaitLatch::count_down() {
  // Notified under the lock: who waits may destroy this as soon as it has it.
  const MutexLock lock(mutex_);
  if (--left_ == 0) done_.notify_all();
}

void WaitLatch::wait(FunctionRef<void()> give_up) {
  const auto* const interrupt = current_interrupt();
  std::exception_ptr unwanted;
  {
    const MutexLock lock(mutex_);
    while (left_ > 0) {
      if (wait_or_interrupt(done_, mutex_)) {
        const MutexUnlock free(mutex_);
        try {
          (*interrupt)();
        } catch (...) {
          // Looked at again all the same: what is waited for may be stuck, and the next signal's
          // handler may be what ends it.
          if (unwanted) continue;
          unwanted = std::current_exception();
          give_up();
        }
      }
    }
  }
  if (unwanted) std::rethrow_exception(unwanted);
}

}  // namespace headrace
