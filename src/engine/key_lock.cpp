#include "engine/key_lock.h"

#include <string>

#include "base/key_locks.h"

namespace headrace {

std::unique_lock<std::mutex> lock_key(std::string_view store_url, std::string_view key) {
  static auto* locks = new KeyLocks;  // never destroyed: threads may outlive statics
  return locks->lock(std::string(store_url) + '\n' + std::string(key));
}

}  // namespace headrace
