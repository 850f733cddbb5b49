#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/control_groups.h"
#include "base/processors.h"

namespace headrace {
namespace {

std::optional<std::int64_t> integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The first line's words; none when there is no such file.
std::vector<std::string> words_of(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

int rounded_up(std::int64_t quota, std::int64_t period) {
  return static_cast<int>(std::clamp<std::int64_t>((quota - 1) / period + 1, 1, 1 << 20));
}

// Of one group; 0 when it has no quota.
int quota_of(const std::string& folder, bool v2) {
  std::optional<std::int64_t> quota;
  std::optional<std::int64_t> period;
  if (v2) {
    const auto words = words_of(folder + "/cpu.max");  // "max 100000", "150000 100000"
    if (words.size() != 2) return 0;
    quota = integer(words[0]);
    period = integer(words[1]);
  } else {
    const auto first = [](const std::vector<std::string>& words) {
      return words.empty() ? std::nullopt : integer(words[0]);
    };
    quota = first(words_of(folder + "/cpu.cfs_quota_us"));  // -1: none
    period = first(words_of(folder + "/cpu.cfs_period_us"));
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return 0;
  return rounded_up(*quota, *period);
}

void take_least(int& least, int found) {
  if (found > 0) least = least == 0 ? found : std::min(least, found);
}

int affinity_processors() {
  // A mask for 1024 processors is too small for some machines: EINVAL then.
  for (int room = 1024; room <= 1 << 20; room *= 4) {
    cpu_set_t* const set = CPU_ALLOC(room);
    if (!set) return 1;
    const std::size_t nbytes = CPU_ALLOC_SIZE(room);
    CPU_ZERO_S(nbytes, set);
    const bool known = sched_getaffinity(0, nbytes, set) == 0;
    const int failure = errno;
    const int n = known ? CPU_COUNT_S(nbytes, set) : 1;
    CPU_FREE(set);
    if (known || failure != EINVAL) return n;
  }
  return 1;
}

}  // namespace

int cgroup_processors(const std::string& root) {
  int least = 0;
  each_control_group(root, "cpu", [&](const std::string& folder, bool is_v2) {
    take_least(least, quota_of(folder, is_v2));
  });
  return least;
}

int allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

int usable_processors() {
  const int n = std::max(affinity_processors(), 1);
  const int quota = cgroup_processors();
  return quota > 0 ? std::min(n, quota) : n;
}

}  // namespace headrace
