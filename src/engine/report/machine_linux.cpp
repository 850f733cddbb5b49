#include <fstream>

#include "engine/report/machine.h"

namespace headrace {
namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// The folder of this process's cgroup (version 2). In a container it is the mount's root.
std::string cgroup_folder() {
  const std::string root = "/sys/fs/cgroup";
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::/", 0) != 0) continue;
    const std::string folder = root + line.substr(3);
    if (std::ifstream(folder + "/cgroup.procs")) return folder;
  }
  return root;
}

}  // namespace

GroupLimits group_limits() {
  const std::string folder = cgroup_folder();
  return {first_line(folder + "/cpu.max"), first_line(folder + "/memory.max")};
}

std::optional<std::string> transparent_huge_pages() {
  return first_line("/sys/kernel/mm/transparent_hugepage/enabled");
}

}  // namespace headrace
