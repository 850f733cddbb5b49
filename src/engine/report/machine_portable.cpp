#include "engine/report/machine.h"

namespace headrace {

GroupLimits group_limits() { return {}; }

std::optional<std::string> transparent_huge_pages() { return std::nullopt; }

}  // namespace headrace
