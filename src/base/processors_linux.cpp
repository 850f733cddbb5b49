#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

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

// Whether `item` is one of a list as "cpu,cpuacct".
bool lists(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == item) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// mountinfo writes a space as \040.
std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 3 < text.size();
    if (!escape) {
      result += text[i];
      continue;
    }
    const auto digit = [&](std::size_t k) { return static_cast<unsigned>(text[i + k] - '0') & 7U; };
    result += static_cast<char>(digit(1) << 6 | digit(2) << 3 | digit(3));
    i += 3;
  }
  return result;
}

struct Hierarchy {
  bool v2 = false;
  std::string root;   // of the groups that this mount shows
  std::string point;  // where it is mounted
};

// https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html:
// "36 35 98:0 ROOT POINT options optional... - TYPE source SUPER_OPTIONS"
std::vector<Hierarchy> mounted_hierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  std::ifstream in(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream text(line);
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool v2 = dash[1] == "cgroup2";
    if (v2 || (dash[1] == "cgroup" && lists(dash[3], "cpu")))
      found.push_back({v2, unescaped(words[3]), unescaped(words[4])});
  }
  return found;
}

// The path of this process's group in the hierarchy of one version, "/user.slice/x.service".
// https://man7.org/linux/man-pages/man7/cgroups.7.html: "ID:CONTROLLERS:PATH", v2 as "0::PATH".
std::optional<std::string> group_path(const std::string& root, bool v2) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() : lists(controllers, "cpu")) return line.substr(second + 1);
  }
  return std::nullopt;
}

void take_least(int& least, int found) {
  if (found > 0) least = least == 0 ? found : std::min(least, found);
}

// The group's own quota and those of all it is in, as far as they are shown here.
int least_quota(const std::string& root, const Hierarchy& mounted, const std::string& group) {
  std::string below = group;
  if (mounted.root != "/") {
    // A container: the mount begins at its own group. What is not within cannot be looked up.
    below = group.starts_with(mounted.root) ? group.substr(mounted.root.size()) : "";
  }
  if (below.find("/..") != std::string::npos) below.clear();  // outside the namespace
  int least = 0;
  for (;;) {
    while (below.ends_with('/')) below.pop_back();
    take_least(least, quota_of(root + mounted.point + below, mounted.v2));
    if (below.empty()) return least;
    below.resize(std::min(below.rfind('/'), below.size() - 1));
  }
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
  for (const Hierarchy& mounted : mounted_hierarchies(root)) {
    if (const auto group = group_path(root, mounted.v2))
      take_least(least, least_quota(root, mounted, *group));
  }
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
