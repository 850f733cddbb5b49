#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "shm/futex.h"

namespace headrace::shm {

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

}  // namespace headrace::shm
