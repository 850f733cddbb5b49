#pragma once

#include <string>

namespace headrace {

// Processors that this process may use, at least 1: those of its affinity, which cpusets count in,
// and no more than the CPU quota of its control groups (v1 and v2) and of those around them gives.
int usable_processors();

// What the quotas give, rounded up; 0 when there is none. `root` stands in front of /proc and of
// the mounted groups, for tests.
int cgroup_processors(const std::string& root = "");

// Those of its affinity; 0 where the system does not say.
int allowed_processors();

// As the maker calls it; empty where the system does not say.
std::string processor_model();

}  // namespace headrace
