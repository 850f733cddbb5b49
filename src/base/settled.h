#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <ctime>

#include "base/file_times.h"

namespace headrace {

// Whether a later change of a file or folder is sure to show in its times: one within the same tick
// of the clock, of 10 ms at most, would not. By the time of the last change, which nobody can set.
inline bool is_settled(const struct stat& st) {
  constexpr std::int64_t kSettled_ns = 50'000'000;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const std::int64_t since =
      (now.tv_sec - changed_at(st).tv_sec) * 1'000'000'000 + (now.tv_nsec - changed_at(st).tv_nsec);
  return since > kSettled_ns;
}

}  // namespace headrace
