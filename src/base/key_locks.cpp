#include "base/key_locks.h"

#include <functional>

namespace headrace {

std::unique_lock<std::mutex> KeyLocks::lock(std::string_view key) {
  auto& stripes = stripes_.get();
  return std::unique_lock(stripes[std::hash<std::string_view>()(key) % stripes.size()]);
}

}  // namespace headrace
