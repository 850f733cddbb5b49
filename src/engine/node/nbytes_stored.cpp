#include <cstdint>

#include "engine/fetch/stored_chunks.h"
#include "engine/request/array_state.h"

namespace headrace {

std::int64_t Array::nbytes_stored() const {
  return static_cast<std::int64_t>(stored_nbytes(*state_));
}

}  // namespace headrace
