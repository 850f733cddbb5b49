#pragma once

#include <string>
#include <string_view>

#include "base/function_ref.h"

namespace headrace {

// Of Linux alone. Calls visit(folder, is_v2) for the control groups that this process is in (v1:
// that of the controller, "cpu"), each with those around it. `root` stands in front of /proc and of
// the mounted groups, for tests.
using VisitGroup = FunctionRef<void(const std::string& folder, bool is_v2)>;
void each_control_group(const std::string& root, std::string_view controller, VisitGroup visit);

}  // namespace headrace
