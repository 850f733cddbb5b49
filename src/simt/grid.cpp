#include <limits>
#include <string>

#include "headrace/error.h"
#include "simt/queue.h"

namespace headrace {

unsigned grid_ctas(std::size_t ctas) {
  constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
  if (ctas > kMost) {
    throw Error(ErrorCode::unsupported,
                "a kernel for " + std::to_string(ctas) + " CTAs: a grid has " +
                    std::to_string(kMost) + " at most; give less at once");
  }
  return static_cast<unsigned>(ctas);
}

}  // namespace headrace
