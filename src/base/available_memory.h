#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headrace {

// Bytes that this process could still take before somebody is killed for it: of the machine, and of
// the control groups that it is in. Nothing where the system does not tell. `root` stands in front
// of /proc and of the mounted groups, for tests.
std::optional<std::uint64_t> available_memory(const std::string& root = "");

}  // namespace headrace
