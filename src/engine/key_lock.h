#pragma once

#include <mutex>
#include <string_view>

namespace headrace {

// Held while a stored object is read, changed and put back, so that two threads of this process do
// not lose each other's part of it. Other processes are not held off: writers that share a chunk
// must agree among themselves, as with every Zarr library. A child of fork starts with all free.
std::unique_lock<std::mutex> lock_key(std::string_view store_url, std::string_view key);

}  // namespace headrace
