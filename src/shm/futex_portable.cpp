// POSIX has process-shared condition variables, but no robust ones: a process that is killed while
// it has the mutex of one would stop all others. So a word is looked at now and then, which
// nobody's death disturbs.

#include <algorithm>
#include <thread>

#include "shm/futex.h"

namespace headrace::shm {

bool futex_wait(std::atomic<std::uint32_t>& word,
                std::uint32_t value,
                std::chrono::nanoseconds timeout) {
  using namespace std::chrono_literals;
  // Who was not answered soon is seldom answered very soon: seldom enough to leave the processor
  // alone, often enough not to be felt.
  constexpr std::chrono::nanoseconds kLongest = 2ms;
  std::chrono::nanoseconds step = 50us;
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (word.load(std::memory_order_acquire) == value) {
    const std::chrono::nanoseconds left = end - std::chrono::steady_clock::now();
    if (left <= 0ns) return false;
    std::this_thread::sleep_for(std::min(left, step));
    step = std::min(step + step / 4, kLongest);
  }
  return true;
}

void futex_wake(std::atomic<std::uint32_t>&, int) {}

}  // namespace headrace::shm
