#include "base/available_memory.h"

namespace headrace {

std::optional<std::uint64_t> available_memory(const std::string&) { return std::nullopt; }

}  // namespace headrace
