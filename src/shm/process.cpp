#include "shm/process.h"

#include <unistd.h>

#include <chrono>

namespace headrace::shm {

std::atomic<uid_t (*)()> this_user = geteuid;

std::uint64_t monotonic_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

}  // namespace headrace::shm
