#include "engine/request/key_lock.h"

#include <string>

namespace headrace {

KeyLocks::Lock lock_key(std::string_view array, std::string_view key) {
  static auto* locks = new KeyLocks;  // never destroyed: threads may outlive statics
  std::string name;
  name.reserve(array.size() + key.size() + 1);
  name.append(array);
  name += '/';
  name.append(key);
  return locks->lock(name);
}

}  // namespace headrace
