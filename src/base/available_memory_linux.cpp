#include <algorithm>
#include <fstream>
#include <string>

#include "base/available_memory.h"
#include "base/control_groups.h"

namespace headrace {
namespace {

// The number behind a word in a file of lines such as "MemAvailable:  123 kB".
std::optional<std::uint64_t> number_of(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string found; file >> found;) {
    std::uint64_t number = 0;
    if (found == word && file >> number) return number;
    file.clear();
  }
  return std::nullopt;
}

// Of a file that is one number; nothing where it is "max".
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

void narrow(std::optional<std::uint64_t>& least, std::optional<std::uint64_t> other) {
  if (other) least = std::min(least.value_or(*other), *other);
}

// What is left of a group's limit; the page cache that it is charged with gives way.
std::optional<std::uint64_t> left_of_group(const std::string& folder,
                                           const char* limit,
                                           const char* usage) {
  const auto most = number_in(folder + limit), used = number_in(folder + usage);
  if (!most || !used) return std::nullopt;
  const std::string stat = folder + "/memory.stat";
  const std::uint64_t cache =
      number_of(stat, "inactive_file").value_or(0) + number_of(stat, "active_file").value_or(0);
  const std::uint64_t held = *used - std::min(*used, cache);
  return *most - std::min(*most, held);
}

}  // namespace

std::optional<std::uint64_t> available_memory(const std::string& root) {
  std::optional<std::uint64_t> least;
  if (const auto free_kib = number_of(root + "/proc/meminfo", "MemAvailable:"))
    least = *free_kib << 10;
  each_control_group(root, "memory", [&](const std::string& folder, bool is_v2) {
    narrow(least,
           is_v2 ? left_of_group(folder, "/memory.max", "/memory.current")
                 : left_of_group(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes"));
  });
  return least;
}

}  // namespace headrace
