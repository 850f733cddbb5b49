#include <algorithm>
#include <thread>

#include "base/processors.h"

namespace headrace {

int cgroup_processors(const std::string&) { return 0; }

int allowed_processors() { return 0; }

std::string processor_model() { return {}; }

int usable_processors() {
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

}  // namespace headrace
