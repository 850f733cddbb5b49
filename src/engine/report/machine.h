#pragma once

// What the system says of itself for a report, in its own words.

#include <optional>
#include <string>

namespace headrace {

// Of this process's control group; nothing where there is none.
struct GroupLimits {
  std::optional<std::string> cpu_max;
  std::optional<std::string> memory_max;
};
GroupLimits group_limits();

std::optional<std::string> transparent_huge_pages();

}  // namespace headrace
