#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/key_locks.h"
#include "engine/request/array_state.h"

namespace headrace {

// The locks of one array's stored objects, for one write.
class ObjectLocks {
 public:
  // Looks up where the array's folder really is.
  explicit ObjectLocks(const ArrayState& array);

  // Held while a stored object is read, changed and put back, so that two threads of this process
  // do not lose each other's part of it, however they opened the array. Other processes are not
  // held off: where the store knows no conditions, writers that share a chunk must agree among
  // themselves, as with every Zarr library. Who has one may wait for what others of the same write
  // need to be stored, but for no other lock. A child of fork starts with all free.
  KeyLocks::Lock lock(std::string_view key, const std::function<void()>& poll = {}) const;
  // Nothing: somebody has it.
  std::optional<KeyLocks::Lock> try_lock(std::string_view key) const;

 private:
  std::string name_of(std::string_view key) const;

  const std::size_t prefix_nbytes_;  // of keys, before those of chunks
  const std::string identity_;       // of the array's folder (StoreDriver)
};

}  // namespace headrace
