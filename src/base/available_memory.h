#pragma once

#include <cstdint>
#include <optional>

namespace headrace {

// Bytes that this process could still take before somebody is killed for it: of the machine, and of
// the control group that it is in. Nothing where the system does not tell.
std::optional<std::uint64_t> available_memory();

}  // namespace headrace
