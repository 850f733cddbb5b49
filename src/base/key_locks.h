#pragma once

#include <array>
#include <mutex>
#include <string_view>

#include "base/per_process.h"

namespace headrace {

// Locks by key, some keys sharing one: who holds one takes no other. A child of fork starts with
// all free.
class KeyLocks {
 public:
  std::unique_lock<std::mutex> lock(std::string_view key);

 private:
  PerProcess<std::array<std::mutex, 256>> stripes_;
};

}  // namespace headrace
