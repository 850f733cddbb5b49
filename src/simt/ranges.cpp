#include "simt/ranges.h"

#include <algorithm>

#include "base/thread_pool.h"

namespace headrace {
namespace {

// Each costs its caller some 2 us to wake, and a plan takes well under a millisecond.
constexpr int kMaxThreads = 8;

}  // namespace

void for_each_range(std::size_t n,
                    std::size_t length,
                    FunctionRef<void(std::size_t begin, std::size_t end)> body) {
  parallel_for((n + length - 1) / length,
               [&](std::size_t i) { body(i * length, std::min((i + 1) * length, n)); },
               std::min(thread_count(), kMaxThreads));
}

}  // namespace headrace
