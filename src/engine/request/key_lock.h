#pragma once

#include <string_view>

#include "base/key_locks.h"

namespace headrace {

// Held while a stored object is read, changed and put back, so that two threads of this process do
// not lose each other's part of it. `array`: the identity of the array's folder (StoreDriver), the
// same however the array was opened; `key`: of the chunk below it. Other processes are not held
// off: writers that share a chunk must agree among themselves, as with every Zarr library. A child
// of fork starts with all free.
KeyLocks::Lock lock_key(std::string_view array, std::string_view key);

}  // namespace headrace
