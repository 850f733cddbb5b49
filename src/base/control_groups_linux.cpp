#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/control_groups.h"

namespace headrace {
namespace {

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
std::vector<Hierarchy> mounted_hierarchies(const std::string& root, std::string_view controller) {
  std::vector<Hierarchy> found;
  std::ifstream in(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream text(line);
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool v2 = dash[1] == "cgroup2";
    if (v2 || (dash[1] == "cgroup" && lists(dash[3], controller)))
      found.push_back({v2, unescaped(words[3]), unescaped(words[4])});
  }
  return found;
}

// The path of this process's group in the hierarchy of one version, "/user.slice/x.service".
// https://man7.org/linux/man-pages/man7/cgroups.7.html: "ID:CONTROLLERS:PATH", v2 as "0::PATH".
std::optional<std::string> group_path(const std::string& root,
                                      bool v2,
                                      std::string_view controller) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() : lists(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The group itself and all it is in, as far as they are shown here.
void visit_upwards(const std::string& root,
                   const Hierarchy& mounted,
                   const std::string& group,
                   VisitGroup visit) {
  std::string below = group;
  if (mounted.root != "/") {
    // A container: the mount begins at its own group. What is not within cannot be looked up.
    below = group.starts_with(mounted.root) ? group.substr(mounted.root.size()) : "";
  }
  if (below.find("/..") != std::string::npos) below.clear();  // outside the namespace
  for (;;) {
    while (below.ends_with('/')) below.pop_back();
    visit(root + mounted.point + below, mounted.v2);
    if (below.empty()) return;
    below.resize(std::min(below.rfind('/'), below.size() - 1));
  }
}

}  // namespace

void each_control_group(const std::string& root, std::string_view controller, VisitGroup visit) {
  for (const Hierarchy& mounted : mounted_hierarchies(root, controller)) {
    if (const auto group = group_path(root, mounted.v2, controller))
      visit_upwards(root, mounted, *group, visit);
  }
}

}  // namespace headrace
