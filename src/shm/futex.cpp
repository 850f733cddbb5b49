#include "shm/futex.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#else
#include <algorithm>
#include <thread>
#endif

namespace headrace::shm {

#ifdef __linux__

namespace {

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, timespec* time) {
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  return syscall(
      SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, time, nullptr, 0);
}

}  // namespace

bool futex_wait(std::atomic<std::uint32_t>& word,
                std::uint32_t value,
                std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec time{seconds.count(), (timeout - seconds).count()};
  return futex(word, FUTEX_WAIT, value, &time) == 0 || errno != ETIMEDOUT;
}

void futex_wake(std::atomic<std::uint32_t>& word, int count) {
  futex(word, FUTEX_WAKE, static_cast<std::uint32_t>(count), nullptr);
}

#else  // elsewhere there is no such call for memory that processes share

bool futex_wait(std::atomic<std::uint32_t>& word,
                std::uint32_t value,
                std::chrono::nanoseconds timeout) {
  using namespace std::chrono_literals;
  for (std::chrono::nanoseconds left = timeout; left > 0ns; left -= 200us) {
    if (word.load(std::memory_order_relaxed) != value) return true;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, 200us));
  }
  return false;
}

void futex_wake(std::atomic<std::uint32_t>&, int) {}

#endif

}  // namespace headrace::shm
