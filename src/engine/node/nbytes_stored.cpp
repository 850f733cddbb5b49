#include <atomic>
#include <cstdint>

#include "base/thread_pool.h"
#include "engine/fetch/stored_chunks.h"
#include "engine/request/array_state.h"

namespace headrace {

std::int64_t Array::nbytes_stored() const {
  const Listing listing = list_chunks(*state_);
  std::atomic<std::int64_t> total{0};
  parallel_for(listing.inside.size(), [&](std::size_t i) {
    const auto reader = state_->driver().open(listing.inside[i]);
    if (reader) total += static_cast<std::int64_t>(reader->size());  // none: removed since listed
  });
  return total;
}

}  // namespace headrace
