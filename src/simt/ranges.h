#pragma once

#include <cstddef>

#include "base/function_ref.h"

namespace headrace {

// For planning on the host: calls body(begin, end) for [0, n) cut into ranges of `length`, of which
// the last may be shorter, from this thread and free ones of the pool. One range stays here.
void for_each_range(std::size_t n,
                    std::size_t length,
                    FunctionRef<void(std::size_t begin, std::size_t end)> body);

// A length for what takes some 20 ns each. Shorter ranges, or more threads, cost more to wake than
// they spare.
inline constexpr std::size_t kListRange = 2048;

}  // namespace headrace
