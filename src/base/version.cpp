#include <string>

#include "headrace/config.h"

namespace headrace {

std::string version() { return HEADRACE_VERSION; }

}  // namespace headrace
